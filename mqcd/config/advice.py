"""Advice derived from the event log, as files that operators review and the server loads while it runs.

    %DIRVAR%/advice/proposed.xml    what was found last; may be edited before it is applied
    %DIRVAR%/advice/active.xml      what is in effect
    %DIRVAR%/advice/cancelled.xml   what an operator cancelled: not proposed again before its `until`

Promise: a file is read whole or not at all: `BadConfiguration` has every error of it, each with file, line
and attribute, up to `MAX_ERRORS`. What is written reads back as the same values. Memory goes with the
number of pieces, never with the size of the text. No file is written here: `document` gives the octets.
"""

from __future__ import annotations

import errno
import hashlib
import pathlib
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields
from datetime import UTC, datetime
from typing import Any, BinaryIO
from xml.sax.saxutils import quoteattr

from mqcd.config.document import BadDocument, Tag, each_tag
from mqcd.config.kinds.fields import DELAY, BadValue, Count, Listed, RateKind
from mqcd.config.problems import BadConfiguration, Remark
from mqcd.config.settings import Rate
from mqcd.core.address import check_address, normal_domain, split_address
from mqcd.core.display import printable
from mqcd.core.errors import DecodeError
from mqcd.core.events import format_time
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value

VERSION = "1"
MAX_ERRORS = 100
MAX_TEXT = 1000
"""Characters of a reason, a reply or evidence that are kept."""

_DELAYS = Listed(DELAY)
_RATE = RateKind()
_CONNECTIONS = Count(least=1)
_SAVES = Count()


@value
class Piece:
    """One piece of advice, why it is given, and how long it holds."""

    id: str
    """Names the piece for ever: the same subject always has the same one (`piece_id`)."""
    reason: str
    evidence: str = ""
    saves: int = 0
    """Attempts in vain that it saves in 30 days, by what was seen."""
    since: int
    """When it was first given, ms."""
    until: int
    """When it loses its effect, ms."""


@value
class Suppression(Piece):
    """No attempt is made for mail to this recipient."""

    recipient: str
    """The address, or the hash that stands for it in the event log (`<hashkey>`)."""
    status: str = ""
    """Enhanced status code (RFC 3463) that the refusals had."""
    reply: str = ""
    """The last of them."""
    site: str = ""
    """Who gave it."""


@value
class Shaping(Piece):
    """Settings for a destination; attributes as in `<destination>`, None and () = unchanged."""

    match: str
    rate: Rate | None = None
    maxserverconnections: int | None = None
    retry_delays: tuple[int, ...] = ()


@value
class Advice:
    """The pieces of one file."""

    made: int = 0
    """When it was written, ms."""
    suppressions: Mapping[str, Suppression] = field(default_factory=dict)
    """By recipient, in comparable form (`comparable`)."""
    shapings: tuple[Shaping, ...] = ()

    def __len__(self) -> int:
        return len(self.suppressions) + len(self.shapings)

    def pieces(self) -> Iterator[Suppression | Shaping]:
        """All of them: shapings, which are few, before suppressions."""
        yield from self.shapings
        yield from self.suppressions.values()

    def keeping(self, wanted: Callable[[Suppression | Shaping], bool]) -> Advice:
        """The same with only the wanted pieces."""
        return Advice(
            made=self.made,
            suppressions={name: each for name, each in self.suppressions.items() if wanted(each)},
            shapings=tuple(each for each in self.shapings if wanted(each)),
        )


def suppression_id(recipient: str) -> str:
    """The id of a recipient's suppression."""
    return "s-" + _digest(comparable(recipient))


def shaping_id(match: str) -> str:
    """The id of a destination's shaping."""
    return "d-" + _digest(normal_domain(match))


def _digest(subject: str) -> str:
    return hashlib.blake2b(subject.encode(), digest_size=6).hexdigest()


def comparable(recipient: str) -> str:
    """An address as suppressions compare it.

    Case is ignored: a capital letter must not evade the list.
    """
    local, domain = split_address(recipient)
    return f"{local.lower()}@{normal_domain(domain)}" if domain else local


Naming = Callable[[str], str]
"""What stands for a recipient in an advice file: `comparable`, or a hash where the event log has hashes."""


@value
class SuppressionList:
    """The suppressed recipients, looked up by address."""

    listed: Mapping[str, Suppression]
    naming: Naming = comparable

    def find(self, recipient: str) -> Suppression | None:
        """The suppression of this address; None: it is not suppressed."""
        return self.listed.get(self.naming(recipient)) if self.listed else None

    def refusal(self, recipient: str) -> Reply | None:
        """The reply that says so."""
        piece = self.find(recipient)
        if piece is None:
            return None
        until = format_time(piece.until)[:10]
        text = f"On this server's suppression list until {until} as {piece.id}: {piece.reason}"
        return Reply(code=550, status=_STATUS, text=text[:_MAX_REASON])


_STATUS = "5.1.1"
_MAX_REASON = 200
"""Characters of a reply that says why; a line of a reply has room for 512 octets (RFC 5321, 4.5.3.1.5)."""


# ---------------------------------------------------------------- reading


def read_advice(path: pathlib.Path) -> Advice:
    """The advice of a file. Raises BadConfiguration, also when it cannot be read."""
    reading = _Reading(str(path))
    try:
        with _open(path) as file:
            for tag in each_tag(file):
                reading.take(tag)
                if len(reading.errors) >= MAX_ERRORS:
                    break
    except OSError as error:
        reading.wrong(0, "", f"cannot be read: {error.strerror}")
    except BadDocument as error:
        reading.wrong(error.line, "", str(error))
    return reading.advice()


def _open(path: pathlib.Path) -> BinaryIO:
    """A FIFO is not waited for: the server looks at this file while it runs. Raises OSError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    return path.open("rb")


class _Reading:
    """One walk through a file; goes on after an error, to find them all."""

    def __init__(self, file: str) -> None:
        self.errors: list[Remark] = []
        self._file = file
        self._made = 0
        self._suppressions: dict[str, Suppression] = {}
        self._shapings: list[Shaping] = []

    def wrong(self, line: int, path: str, text: str) -> None:
        self.errors.append(Remark(file=self._file, line=line, path=path, text=text))

    def advice(self) -> Advice:
        if self.errors:
            raise BadConfiguration(tuple(self.errors))
        return Advice(made=self._made, suppressions=self._suppressions, shapings=tuple(self._shapings))

    def take(self, tag: Tag) -> None:
        if tag.depth == 0:
            self._root(tag)
        elif tag.depth > 1 or (kind := _KINDS.get(tag.name)) is None:
            self.wrong(tag.line, tag.name, "unknown here: expected suppress or shape inside advice")
        elif (values := self._values(tag, kind)) is not None:
            piece = kind(**values)
            if isinstance(piece, Suppression):
                self._suppressions[comparable(piece.recipient)] = piece
            else:
                self._shapings.append(piece)

    def _root(self, tag: Tag) -> None:
        if tag.name != "advice":
            self.wrong(tag.line, tag.name, "this is no advice: expected <advice>")
        elif tag.attributes.get("version") != VERSION:
            found = tag.attributes.get("version", "none")
            self.wrong(tag.line, "advice@version", f"{found}: this server reads version {VERSION}")
        elif "made" in tag.attributes:
            try:
                self._made = _time(tag.attributes["made"])
            except ValueError as error:
                self.wrong(tag.line, "advice@made", str(error))

    def _values(self, tag: Tag, kind: type[Piece]) -> dict[str, Any] | None:
        values: dict[str, Any] = {}
        before = len(self.errors)
        for name, text in tag.attributes.items():
            if name not in _NAMES[kind]:
                self.wrong(tag.line, f"{tag.name}@{name}", f"unknown: expected {', '.join(_NAMES[kind])}")
                continue
            try:
                values[name] = _ATTRIBUTES[name][0](_line(text))
            except (ValueError, BadValue, DecodeError) as error:
                self.wrong(tag.line, f"{tag.name}@{name}", str(error))
        for name in _REQUIRED[kind]:
            if name not in tag.attributes:
                self.wrong(tag.line, f"{tag.name}@{name}", "is missing")
        return values if len(self.errors) == before else None


def _time(text: str) -> int:
    """Milliseconds of an RFC 3339 time; ValueError with what was expected."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return round(at.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f'"{text}" does not fit: expected a time such as 2026-01-31T09:00:00.000Z')


def _line(text: str) -> str:
    """Reasons and replies stand in what this server answers: a line end in them would begin another reply."""
    hidden = next((char for char in text if not char.isprintable()), None)
    if hidden is not None:
        raise ValueError(f"holds U+{ord(hidden):04X}: write one line without control characters")
    return text


def _text(text: str) -> str:
    return text[:MAX_TEXT]


def _name(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


def _recipient(text: str) -> str:
    """An address, or what stands for one: hashes keep the form of an address or are bare words."""
    return check_address(text) if "@" in text else _name(text)


_ATTRIBUTES: Mapping[str, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    "id": (_name, str),
    "recipient": (_recipient, str),
    "status": (_text, str),
    "reply": (_text, str),
    "site": (_text, str),
    "match": (_name, str),
    "rate": (_RATE.parse, _RATE.show),
    "maxserverconnections": (_CONNECTIONS.parse, _CONNECTIONS.show),
    "retry_delays": (_DELAYS.parse, _DELAYS.show),
    "reason": (_text, str),
    "evidence": (_text, str),
    "saves": (_SAVES.parse, _SAVES.show),
    "since": (_time, format_time),
    "until": (_time, format_time),
}
"""How each is read and written, in the order that a person wants: what it is about, why, and how long."""
_KINDS: Mapping[str, type[Suppression] | type[Shaping]] = {"suppress": Suppression, "shape": Shaping}
"""By the name of the element."""
_NAMES: Mapping[type[Piece], Sequence[str]] = {
    kind: [name for name in _ATTRIBUTES if name in kind.__dataclass_fields__] for kind in _KINDS.values()
}
"""The attributes of each kind's element, in their order."""
_REQUIRED: Mapping[type[Piece], Sequence[str]] = {
    kind: [each.name for each in fields(kind) if each.default is MISSING] for kind in _KINDS.values()
}
"""Those of them that must be given."""

# ---------------------------------------------------------------- writing


def document(advice: Advice) -> Iterator[bytes]:
    """The octets of a file, a piece at a time."""
    yield f"<advice version={quoteattr(VERSION)} made={quoteattr(format_time(advice.made))}>\n".encode()
    for piece in advice.pieces():
        name = "shape" if isinstance(piece, Shaping) else "suppress"
        parts = [f"{each}={quoteattr(text)}" for each, text in attributes(piece).items()]
        yield f"  <{name} {' '.join(parts)}/>\n".encode()
    yield b"</advice>\n"


def attributes(piece: Piece) -> dict[str, str]:
    """A piece as a file has it; what says nothing is left out."""
    found: dict[str, str] = {}
    for name in _NAMES[type(piece)]:
        value = getattr(piece, name)
        if value or name == "reason":
            # XML 1.0 has no place for most control characters, however they are escaped.
            found[name] = printable(_ATTRIBUTES[name][1](value))
    return found
