"""The operating system's hosts file: names that its administrator gave addresses, without DNS.

Read again when it changes, checked at most every `LOOK_MS`. A file that is missing or cannot be
read counts as empty; a malformed line is skipped, as the C library does (hosts(5)).
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

from mqcd.core.ports import Clock

PATH = Path("/etc/hosts")
LOOK_MS = 5000


def parse(text: str) -> dict[str, tuple[str, ...]]:
    """Addresses by name in lower case, in the order of the file."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        try:
            address = str(ipaddress.ip_address(address))
        except ValueError:
            continue
        for name in names:
            key = name.lower().rstrip(".")
            if address not in found.get(key, ()):
                found[key] = (*found.get(key, ()), address)
    return found


class HostsFile:
    """One such file."""

    def __init__(self, clock: Clock, path: Path = PATH) -> None:
        self._clock = clock
        self._path = path
        self._look_at: int | None = None
        self._seen: tuple[int, int, int] | None = None
        self._found: dict[str, tuple[str, ...]] = {}

    def addresses(self, name: str) -> tuple[str, ...]:
        """The addresses of a name, none if the file does not have it."""
        now = self._clock.monotonic()
        if self._look_at is None or now >= self._look_at:
            self._look_at = now + LOOK_MS
            self._read()
        return self._found.get(name.lower().rstrip("."), ())

    def _read(self) -> None:
        try:
            stat = self._path.stat()
            seen = stat.st_ino, stat.st_size, stat.st_mtime_ns
            if seen != self._seen:
                self._found = parse(self._path.read_text("utf-8", "replace"))
                self._seen = seen
        except OSError:
            self._found, self._seen = {}, None
