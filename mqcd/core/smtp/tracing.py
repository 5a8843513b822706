"""Traces: what client and server say in the sessions that concern one address or one peer. Pure.

Never contents and never secrets: of a client's line only known commands are shown, of AUTH the mechanism
alone, of a content its octets; of a challenge (334) nothing. A trace sees sessions that begin after it. What
was said before a session named the address that is sought is kept: KEPT lines of its beginning, and of the
message that names it.

While no trace is on, a session costs one look at `Traces`, where it begins.
"""

from __future__ import annotations

import ipaddress
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mqcd.core.display import printable
from mqcd.core.errors import DecodeError
from mqcd.core.events import format_time

KEPT = 20
"""Lines of a session that may turn out to be sought."""
MOST_LINE = 512
"""Characters of a line that are shown."""
_MOST_HELD = 4096
"""Octets of a line whose end has not come."""
_HIDDEN = "***"
_SHOWN = re.compile(
    r"(?:EHLO|HELO|LHLO|ETRN|ATRN|VRFY|EXPN)(?: .*)?|MAIL FROM:.*|RCPT TO:.*|BDAT [0-9]+(?: LAST)?"
    r"|DATA|RSET|QUIT|NOOP|HELP|STARTTLS",
    re.IGNORECASE,
)
# By name: what stands in the place of a mechanism may be a mistyped secret.
_MECHANISM = (
    "PLAIN|LOGIN|EXTERNAL|ANONYMOUS|CRAM-MD5|DIGEST-MD5|SCRAM-SHA-(?:1|256|512)(?:-PLUS)?"
    "|NTLM|GSSAPI|XOAUTH2|OAUTHBEARER"
)
_LOGIN = re.compile(rf"(AUTH +(?:{_MECHANISM}))( .*)?", re.IGNORECASE)
_NAMED = re.compile(r"(?:MAIL FROM|RCPT TO): *<?([^>\s]+)", re.IGNORECASE)

Row = Mapping[str, str | int | bool]
Peer = Sequence[str]
"""The names of one: its address, and at a next hop those of host and destination."""


class Side(StrEnum):
    """Whose session it is."""

    IN = "in"
    """A client's, at a door."""
    OUT = "out"
    """With a next hop."""


class Who(StrEnum):
    """Who says something."""

    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What is looked for, and who gets to know."""

    sought: str
    """In small letters: a mail address, a domain, a user, a destination or a host; "" with a network."""
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    take: Callable[[Row], None]

    def is_peer(self, peer: Peer) -> bool:
        """Whether it looks for this one."""
        if self.network is None:
            return any(self.sought == name.lower() for name in peer)
        return any(self._has(name) for name in peer)

    def is_said(self, name: str) -> bool:
        """Whether it looks for this address or user, or for its domain."""
        name = name.lower()
        return self.network is None and self.sought in (name, name.rpartition("@")[2])

    def may_concern(self, peer: Peer) -> bool:
        """Whether a session with this peer may have what is looked for."""
        return self.network is None or self.is_peer(peer)

    def _has(self, name: str) -> bool:
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.network is not None and address in self.network


def parse_trace(text: str, take: Callable[[Row], None]) -> Trace:
    """What `text` looks for. Raises DecodeError."""
    sought = text.strip().lower()
    if not sought or not sought.isprintable() or " " in sought:
        raise DecodeError("q: expected an address, a domain, a user, a host, or an IP address or network")
    try:
        return Trace("", ipaddress.ip_network(sought, strict=False), take)
    except ValueError:
        return Trace(sought, None, take)


class Traces:
    """The traces of this process."""

    def __init__(self, now: Callable[[], int]) -> None:
        """`now`: wall time, ms."""
        self._now = now
        self._on: Sequence[Trace] = ()

    def __bool__(self) -> bool:
        return bool(self._on)

    def __len__(self) -> int:
        return len(self._on)

    def add(self, trace: Trace) -> None:
        """From now on, for the sessions that begin."""
        self._on = [*self._on, trace]

    def remove(self, trace: Trace) -> None:
        """It gets nothing more."""
        self._on = [each for each in self._on if each is not trace]

    def is_on(self, trace: Trace) -> bool:
        return any(each is trace for each in self._on)

    def tap(self, side: Side, session: str, name: str, peer: Peer) -> Tap | None:
        """For a session that begins; None where no trace can be for it. `name`: listener or destination."""
        if not any(each.may_concern(peer) for each in self._on):
            return None
        return Tap(self, self._now, {"side": side, "session": session, "name": name, "peer": peer[0]}, peer)

    def all(self) -> Sequence[Trace]:
        """All traces."""
        return self._on


class Tap:
    """One session, as its traces see it."""

    def __init__(self, traces: Traces, now: Callable[[], int], about: Row, peer: Peer) -> None:
        """`about`: what each of its rows has."""
        self._traces = traces
        self._now = now
        self._about = about
        found = [each for each in traces.all() if each.may_concern(peer)]
        self._sure = [each for each in found if each.is_peer(peer)]
        self._maybe = [each for each in found if not each.is_peer(peer)]
        self._head: list[Row] = []
        self._kept: deque[Row] = deque(maxlen=KEPT)
        self._held: dict[Who, bytes] = dict.fromkeys(Who, b"")

    def said(self, who: Who, octets: bytes) -> None:
        """Some octets, at best whole lines; never content."""
        *lines, rest = (self._held[who] + octets).split(b"\n")
        self._held[who] = rest[:_MOST_HELD]
        for line in lines:
            text = printable(line.rstrip(b"\r").decode("utf-8", "replace"))
            if who is Who.CLIENT and text[:5].upper() == "MAIL ":
                self._begin_message()
            self.note("said", who=who, text=_shown(text, who)[:MOST_LINE])
            if who is Who.CLIENT and (found := _NAMED.match(text)) is not None:
                self.names(found[1])

    def secret(self, who: Who) -> None:
        """A line of a login."""
        self.note("said", who=who, text=_HIDDEN)

    def names(self, word: str) -> None:
        """An address of an envelope, or a user: it may be the one that is sought."""
        if not word or not any(each.is_said(word) for each in self._maybe):
            return
        for trace in [each for each in self._maybe if each.is_said(word)]:
            self._maybe.remove(trace)
            self._sure.append(trace)
            if self._traces.is_on(trace):
                for row in (*self._head, *self._kept):
                    trace.take(row)

    def _begin_message(self) -> None:
        """What is kept of the message before does not concern a trace that seeks another one."""
        self._head = self._head or list(self._kept)
        self._kept.clear()

    def note(self, event: str, **fields: str | int) -> None:
        """Something that happens in the session."""
        row: Row = {"event": event, "at": format_time(self._now()), **self._about, **fields}
        if self._maybe:
            self._kept.append(row)
        for trace in self._sure:
            if self._traces.is_on(trace):
                trace.take(row)


def _shown(text: str, who: Who) -> str:
    """What may be shown of a line."""
    if who is Who.SERVER:
        return f"334 {_HIDDEN}" if text.startswith("334") else text
    if _SHOWN.fullmatch(text):
        return text
    if (login := _LOGIN.fullmatch(text)) is not None:
        return f"{login[1]} {_HIDDEN}" if login[2] else login[1]
    return f"{_HIDDEN} ({len(text)} characters)"
