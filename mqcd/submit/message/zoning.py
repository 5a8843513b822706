"""Which zone a message's header section chooses, at the door, once. Pure.

The first zone in the file's order counts that has a match which names a header and fits in all that is
known here: header, sender, listener, user. Domains belong to recipients and are looked at when each is
sent; a match that also names domains then still has to fit there.

Names, listeners and users are compared without regard to case; so are values, unfolded and each run of
white space taken as one space, octets beyond ASCII as UTF-8, encoded words (RFC 2047) as they stand. A field
that comes several times fits if one of its values does. At most `MAX_SECTION` octets are looked at, each
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mqcd.config.settings import ZoneMatchSettings, ZoneSettings
from mqcd.core.address import sent_by

MAX_SECTION = 65536
"""Octets of a message searched as its header section; later fields choose nothing."""


class Zoning:
    """The rules of all zones that match headers."""

    def __init__(self, zones: Iterable[ZoneSettings]) -> None:
        self._rules = [(zone.name, match) for zone in zones for match in zone.matches if match.header]
        named = (name for _, match in self._rules for name in match.header)
        self._names = frozenset(_name_and_value(name)[0] for name in named)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def choose(self, content: bytes, *, sender: str, listener: str, user: str = "") -> str:
        """The name of the zone that the message's beginning chooses; "" = none."""
        if not self._rules:
            return ""
        fields = fields_of(content, self._names)
        for zone, match in self._rules:
            if _fits(match, sender, listener, user) and any(_has(fields, each) for each in match.header):
                return zone
        return ""


def fields_of(content: bytes, names: frozenset[str]) -> Mapping[str, Sequence[str]]:
    """The values of the header fields of these names (in lower case), each in comparable form."""
    found: dict[str, list[str]] = {}
    value: list[bytes] | None = None
    name = ""
    for line in _section(content).split(b"\r\n"):
        if line[:1] in (b" ", b"\t"):
            if value is not None:
                value.append(line)
            continue
        if value is not None:
            found.setdefault(name, []).append(_comparable(b"".join(value)))
        head, colon, rest = line.partition(b":")
        name = head.rstrip(b" \t").decode("latin-1").lower() if colon else ""
        value = [rest] if name in names else None
    if value is not None:
        found.setdefault(name, []).append(_comparable(b"".join(value)))
    return found


def _section(content: bytes) -> bytes:
    if content.startswith(b"\r\n"):
        return b""
    end = content.find(b"\r\n\r\n", 0, MAX_SECTION)
    if end < 0 and len(content) > MAX_SECTION:
        # Half a line would be compared as if it were one.
        end = max(content.rfind(b"\r\n", 0, MAX_SECTION), 0)
    return content if end < 0 else content[:end]


def _comparable(value: bytes) -> str:
    return " ".join(value.decode("utf-8", "replace").lower().split())


def _name_and_value(header: str) -> tuple[str, str | None]:
    name, colon, value = header.partition(":")
    return name.lower(), _comparable(value.encode()) if colon else None


def _has(fields: Mapping[str, Sequence[str]], header: str) -> bool:
    name, value = _name_and_value(header)
    values = fields.get(name, ())
    return bool(values) if value is None else value in values


def _fits(match: ZoneMatchSettings, sender: str, listener: str, user: str) -> bool:
    return (
        (not match.listener or listener.lower() in map(str.lower, match.listener))
        and (not match.user or user.lower() in map(str.lower, match.user))
        and (not match.sender or sent_by(match.sender, sender))
    )
