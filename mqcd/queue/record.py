"""The record line: one recipient as one line of text, in frames and in clusters alike. Pure.

    SPID|QID|area|due|size|attempts|unknowns|code|status|remote|reply|recipient|dsn|
    received|origin|body|zone|listener|client|user|tls|dsn|sender|CRC

Fields are UTF-8; `|`, `%` and control characters are written %XX, so that any legal address fits and
the line ends where it ends. CRC is the zlib.crc32 of what stands before it, 8 hex digits. Decoding
raises only DecodeError; what it gives encodes to the same line again.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from functools import lru_cache
from sys import intern
from typing import NamedTuple

from mqcd.core.address import normal_domain
from mqcd.core.errors import DecodeError
from mqcd.core.model import Area, Body, Envelope, Origin, Recipient
from mqcd.queue import names

FIELDS = 24
_SPECIAL = re.compile(r"[|%\x00-\x1f\x7f]")
_find_special = _SPECIAL.search
_ESCAPED = re.compile(r"%([0-9A-F]{2})")
_AREAS = {Area.INCOMING: "i", Area.DEFERRED: "d", Area.BOUNCES: "b", Area.HELD: "h"}
_LINKED, _WARNED = "l", "w"
_AREA_OF = {
    letter + link + warning: (area, bool(link), bool(warning))
    for area, letter in _AREAS.items()
    for link in ("", _LINKED)
    for warning in ("", _WARNED)
}
_AREA_OF_OCTETS = {word.encode(): flags for word, flags in _AREA_OF.items()}
_ORIGINS = {Origin.SMTP: "s", Origin.REPORT: "r", Origin.IMPORT: "m"}
ORIGIN_OF = {letter: origin for origin, letter in _ORIGINS.items()}
_BODIES = {
    (Body.SEVEN, False): "7",
    (Body.EIGHT, False): "8",
    (Body.SEVEN, True): "7u",
    (Body.EIGHT, True): "8u",
}
_BODY_OF = {word: pair for pair, word in _BODIES.items()}
_crc32 = zlib.crc32

_new = object.__new__


def _setter(owner: type, field: str) -> Callable[[object, object], None]:
    """What assigns a field of a frozen class. Its own way, through object.__setattr__, would take half the
    time of decoding."""
    setter: Callable[[object, object], None] = vars(owner)[field].__set__
    return setter


_set_envelope = _setter(Recipient, "envelope")
_set_size = _setter(Recipient, "size")
_set_qid = _setter(Recipient, "qid")
_set_address = _setter(Recipient, "address")
_set_area = _setter(Recipient, "area")
_set_due = _setter(Recipient, "due")
_set_attempts = _setter(Recipient, "attempts")
_set_unknowns = _setter(Recipient, "unknowns")
_set_code = _setter(Recipient, "code")
_set_status = _setter(Recipient, "status")
_set_reply = _setter(Recipient, "reply")
_set_remote = _setter(Recipient, "remote")
_set_recipient_dsn = _setter(Recipient, "dsn")
_set_linked = _setter(Recipient, "linked")
_set_warned = _setter(Recipient, "warned")
_set_spid = _setter(Envelope, "spid")
_set_sender = _setter(Envelope, "sender")
_set_received = _setter(Envelope, "received")
_set_origin = _setter(Envelope, "origin")
_set_body = _setter(Envelope, "body")
_set_smtputf8 = _setter(Envelope, "smtputf8")
_set_zone = _setter(Envelope, "zone")
_set_listener = _setter(Envelope, "listener")
_set_client = _setter(Envelope, "client")
_set_user = _setter(Envelope, "user")
_set_tls = _setter(Envelope, "tls")
_set_envelope_dsn = _setter(Envelope, "dsn")


def escape(text: str) -> str:
    """`text` fit to be a field."""
    if _find_special(text) is None:
        return text
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape(text: str) -> str:
    """The text that `escape` was given."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "%" in text else text


def join(*fields: str) -> str:
    """`fields`, fit to be fields, with bars between. Most need nothing, and one look at all is cheaper
    than one at each."""
    text = "|".join(fields)
    if text.count("|") < len(fields) and "%" not in text and text.isprintable():
        return text
    return "|".join(map(escape, fields))


def encode(recipient: Recipient, envelope_part: str | None = None) -> bytes:
    """The record line of a recipient, line feed included.

    `envelope_part` is what `encode_envelope` gave, for one who encodes many recipients of a message.
    """
    r = recipient
    spid, area = r.envelope.spid, _AREAS[r.area]
    if r.linked:
        area += _LINKED
    if r.warned:
        area += _WARNED
    head = f"{spid:016X}|{r.qid}|{area}|{r.due}|{r.size}|{r.attempts}|{r.unknowns}|{r.code}|"
    text = join(r.status, r.remote, r.reply, r.address, r.dsn)
    body = f"{head}{text}|{envelope_part or encode_envelope(r.envelope)}|".encode()
    return body + b"%08x\n" % zlib.crc32(body)


def encode_envelope(envelope: Envelope) -> str:
    """The part of a line that all recipients of a message share."""
    e = envelope
    text = join(e.zone, e.listener, e.client, e.user, e.tls, e.dsn, e.sender)
    return f"{e.received}|{_ORIGINS[e.origin]}|{_BODIES[e.body, e.smtputf8]}|{text}"


def check(line: bytes) -> list[bytes]:
    """The fields of a line (with or without its line feed), its checksum verified."""
    line = line.rstrip(b"\n")
    bar = line.rfind(b"|") + 1
    if line[bar:] != b"%08x" % zlib.crc32(line[:bar]):
        raise DecodeError(f"record line fails its checksum: {line[:120]!r}")
    fields = line.split(b"|")
    if len(fields) != FIELDS:
        raise DecodeError(f"record line has {len(fields)} fields, not {FIELDS}: {line[:120]!r}")
    return fields


def verify(line: bytes) -> str:
    """The text of a line (with or without its line feed) up to its checksum, which is right.

    Raises DecodeError. Who reads much looks at the text first, and decodes what it wants of it.
    """
    end = len(line) - 9 if line.endswith(b"\n") else len(line) - 8
    body = line[:end]
    if line[end : end + 8] != b"%08x" % _crc32(body):
        raise DecodeError(f"record line fails its checksum: {line[:120]!r}")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise _impossible(line) from error


def _impossible(line: bytes | str) -> DecodeError:
    return DecodeError(f"record line holds a field that cannot be: {line[:120]!r}")


class Fields(NamedTuple):
    """A line's fields as text, escapes undone. What they mean: `Envelope` and `Recipient`."""

    spid: str
    qid: str
    area: str
    due: str
    size: str
    attempts: str
    unknowns: str
    code: str
    status: str
    remote: str
    reply: str
    address: str
    dsn: str
    received: str
    origin: str
    body: str
    zone: str
    listener: str
    client: str
    user: str
    tls: str
    message_dsn: str
    sender: str
    nothing: str
    """Where the checksum stood."""


_fields = Fields._make


def fields(text: str) -> Fields:
    """The fields of what `verify` gave. Raises DecodeError."""
    parts = text.split("|")
    if "%" in text:
        parts = list(map(unescape, parts))
    try:
        return _fields(parts)
    except TypeError as error:
        raise DecodeError(f"record line has {len(parts)} fields, not {FIELDS}: {text[:120]!r}") from error


def area_of(word: str) -> Area:
    """The area that a line's field names. Raises KeyError."""
    return _AREA_OF[word][0]


def decode(line: bytes) -> Recipient:
    """The recipient that a line records. Raises DecodeError."""
    return parse(verify(line))


def parse(text: str) -> Recipient:
    """The recipient in what `verify` gave. Raises DecodeError."""
    try:
        # Two steps, because most lines share what stands behind the thirteenth bar with the one before.
        spid, qid, area, due, size, attempts, unknowns, code, *words, part = text.split("|", 13)
        status, remote, reply, address, dsn = map(unescape, words) if "%" in text else words
        recipient = _new(Recipient)
        _set_envelope(recipient, _envelope(int(spid, 16), part))
        rests, linked, warned = _AREA_OF[area]
        _set_area(recipient, rests)
        _set_linked(recipient, linked)
        _set_warned(recipient, warned)
        _set_qid(recipient, int(qid))
        _set_due(recipient, int(due))
        _set_size(recipient, int(size))
        _set_attempts(recipient, int(attempts))
        _set_unknowns(recipient, int(unknowns))
        _set_code(recipient, int(code))
    except (ValueError, KeyError) as error:
        raise _impossible(text) from error
    _set_status(recipient, status)
    _set_remote(recipient, remote)
    _set_reply(recipient, reply)
    _set_address(recipient, address)
    _set_recipient_dsn(recipient, dsn)
    return recipient


@lru_cache(maxsize=1024)
def _envelope(spid: int, part: str) -> Envelope:
    received, origin, body, *words, nothing = part.split("|")
    zone, listener, client, user, tls, dsn, sender = map(unescape, words) if "%" in part else words
    if nothing:
        raise ValueError("a field too many")
    envelope = _new(Envelope)
    _set_spid(envelope, spid)
    _set_received(envelope, int(received))
    _set_origin(envelope, ORIGIN_OF[origin])
    _set_body(envelope, _BODY_OF[body][0])
    _set_smtputf8(envelope, _BODY_OF[body][1])
    _set_zone(envelope, zone)
    _set_listener(envelope, listener)
    _set_client(envelope, client)
    _set_user(envelope, user)
    _set_tls(envelope, tls)
    _set_envelope_dsn(envelope, dsn)
    _set_sender(envelope, sender)
    return envelope


def key_of(line: bytes) -> tuple[int, int]:
    """SPID and QID of a line's recipient. Raises DecodeError."""
    try:
        spid, qid, _ = line.split(b"|", 2)
        return int(spid, 16), int(qid)
    except ValueError as error:
        raise DecodeError(f"not a record line: {line[:120]!r}") from error


def file_of(line: bytes) -> int:
    """The file number (see `names`) of the content of a line's recipient. Raises DecodeError."""
    try:
        spid, qid, area, _ = line.split(b"|", 3)
        return names.number(int(spid, 16), int(qid) if _AREA_OF_OCTETS[area][1] else 0)
    except (ValueError, KeyError) as error:
        raise DecodeError(f"not a record line: {line[:120]!r}") from error


class Glance:
    """What scheduling needs of a line, read without decoding the rest; its checksum is not verified."""

    __slots__ = ("area", "due", "fields", "linked", "qid", "received", "size", "spid")

    def __init__(self, line: bytes) -> None:
        try:
            self.fields = line.split(b"|", 14)
            self.spid = int(self.fields[0], 16)
            self.qid = int(self.fields[1])
            self.area, self.linked, _ = _AREA_OF_OCTETS[self.fields[2]]
            self.due = int(self.fields[3])
            self.size = int(self.fields[4])
            self.received = int(self.fields[13])
        except (ValueError, KeyError, IndexError) as error:
            raise DecodeError(f"not a record line: {line[:120]!r}") from error

    @property
    def domain(self) -> str:
        """The recipient's domain in the form of `Recipient.domain`."""
        _, at, domain = self.fields[11].rpartition(b"@")
        return _domain(domain) if at else ""


@lru_cache(maxsize=1024)
def _domain(field: bytes) -> str:
    """Most lines have the domain of one before."""
    return intern(normal_domain(unescape(field.decode("utf-8", "replace"))))
