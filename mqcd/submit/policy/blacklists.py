"""The files of listed clients and senders, kept up to date; see `checks.listed` for what stands in them.

A file that has become unreadable or has a wrong line is logged once for each of its states; what was read
before stays.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Self

from mqcd.disk.durable import describe
from mqcd.submit.checks.listed import NOBODY, BadList, Blacklist, parse_blacklist
from mqcd.submit.users.file import Version, version_of

log = logging.getLogger(__name__)

MAX_OCTETS = 64 << 20


def read_blacklist(path: Path) -> Blacklist:
    """What a file lists. Raises BadList, which names the file, and its lines where some are wrong."""
    try:
        with path.open("rb") as file:
            octets = file.read(MAX_OCTETS + 1)
    except OSError as error:
        raise BadList(f"the blacklist cannot be read: {describe(error)}") from error
    if len(octets) > MAX_OCTETS:
        raise BadList(f"{path} has more than {MAX_OCTETS} octets: is this the blacklist?")
    try:
        return parse_blacklist(octets.decode(), str(path))
    except UnicodeDecodeError as error:
        raise BadList(f"{path}: not UTF-8") from error


class BlacklistFile:
    """One file. `load` and `look` may run in any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: Version | None = None
        self._lock = threading.Lock()
        self.listed = NOBODY
        """What was read last."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file, read. Raises BadList."""
        file = cls(path)
        file.load()
        return file

    def load(self) -> None:
        """Read the file. Raises BadList."""
        version = version_of(self._path)
        self.listed = read_blacklist(self._path)
        self._version = version

    def look(self) -> None:
        """Read the file again if it has changed; an error is logged, and what was read before stays."""
        with self._lock:
            version = version_of(self._path)
            if version == self._version:
                return
            try:
                self.load()
            except BadList as error:
                self._version = version
                log.error("the old blacklist stays: %s", error)
            else:
                log.info("the blacklist was read from %s", self._path)
