"""What systemd gives a service, and is notified of: sockets (sd_listen_fds(3)) and the state (sd_notify(3)).

Without systemd there are none, and nothing is sent. The variables of the environment are read once and
removed, so that no child takes them for its own.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress

from mqcd.core.value import value

log = logging.getLogger(__name__)

_FIRST = 3
_US = 1000
"""Microseconds in a millisecond."""


class Notifier:
    """Sends states to the service manager that has started this process."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._path = environment.pop("NOTIFY_SOCKET", "")
        interval = environment.pop("WATCHDOG_USEC", "")
        meant = environment.pop("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self.watchdog_ms = int(interval) // _US // 2 if interval.isdecimal() and meant else 0
        """Interval at which `alive` is to be called; 0 = it need not be."""

    def ready(self) -> None:
        """Mail is taken."""
        self._send(f"READY=1\nMAINPID={os.getpid()}")

    def alive(self) -> None:
        """The watchdog's time begins anew."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The service ends."""
        self._send("STOPPING=1")

    def _send(self, state: str) -> None:
        if not self._path:
            return
        # A name in the abstract namespace begins with @.
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out, suppress(OSError):
            out.sendto(state.encode(), address)


def given_sockets(
    environment: MutableMapping[str, str], first: int = _FIRST
) -> Mapping[str, list[socket.socket]]:
    """The sockets that this process was started with, by their FileDescriptorName; not blocking."""
    meant = environment.pop("LISTEN_PID", "") == str(os.getpid())
    count, names = environment.pop("LISTEN_FDS", ""), environment.pop("LISTEN_FDNAMES", "")
    found: dict[str, list[socket.socket]] = {}
    if not meant or not count.isdecimal():
        return found
    named = names.split(":") if names else []
    for index in range(int(count)):
        descriptor = first + index
        try:
            os.set_inheritable(descriptor, False)
            given = socket.socket(fileno=descriptor)
        except OSError as error:
            log.warning("descriptor %d of the service manager is no socket: %s", descriptor, error.strerror)
            continue
        given.setblocking(False)
        found.setdefault(named[index] if index < len(named) else "", []).append(given)
    return found


@value(kw_only=False)
class Manager:
    """What there is of a service manager."""

    notifier: Notifier
    sockets: Mapping[str, Sequence[socket.socket]]
    """Bound sockets, by their names."""

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Manager:
        """The one that these variables describe."""
        return cls(Notifier(environment), given_sockets(environment))


ALONE = Manager.of({})
"""There is none."""
