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
from functools import lru_cache

from mqcd.core.errors import DecodeError
from mqcd.core.model import Area, Body, Envelope, Origin, Recipient
from mqcd.queue import names

FIELDS = 24
_SPECIAL = re.compile(r"[|%\x00-\x1f\x7f]")
_find_special = _SPECIAL.search
_ESCAPED = re.compile(r"%([0-9A-F]{2})")
_AREAS = {Area.INCOMING: "i", Area.DEFERRED: "d", Area.BOUNCES: "b", Area.HELD: "h"}
_LINKED = "l"
_AREA_OF = {
    (letter + flag).encode(): (area, bool(flag)) for area, letter in _AREAS.items() for flag in ("", _LINKED)
}
_ORIGINS = {Origin.SMTP: "s", Origin.REPORT: "r", Origin.IMPORT: "m"}
_ORIGIN_OF = {letter: origin for origin, letter in _ORIGINS.items()}
_BODIES = {
    (Body.SEVEN, False): "7",
    (Body.EIGHT, False): "8",
    (Body.SEVEN, True): "7u",
    (Body.EIGHT, True): "8u",
}
_BODY_OF = {word: pair for pair, word in _BODIES.items()}


def escape(text: str) -> str:
    """`text` fit to be a field."""
    if _find_special(text) is None:
        return text
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape(text: str) -> str:
    """The text that `escape` was given."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "%" in text else text


def _plain(text: str, bars: int) -> bool:
    """Whether `text`, made of fields as they are, holds no more bars than those between them, and
    nothing else that would have had to be escaped. Most lines are so, and one look is cheaper than ten."""
    return text.count("|") == bars and "%" not in text and text.isprintable()


def encode(recipient: Recipient, envelope_part: str | None = None) -> bytes:
    """The record line of a recipient, line feed included.

    `envelope_part` is what `encode_envelope` gave, for one who encodes many recipients of a message.
    """
    r = recipient
    spid, area = r.envelope.spid, _AREAS[r.area] + (_LINKED if r.linked else "")
    head = f"{spid:016X}|{r.qid}|{area}|{r.due}|{r.size}|{r.attempts}|{r.unknowns}|{r.code}|"
    text = f"{r.status}|{r.remote}|{r.reply}|{r.address}|{r.dsn}"
    if not _plain(text, 4):
        text = "|".join(map(escape, (r.status, r.remote, r.reply, r.address, r.dsn)))
    body = f"{head}{text}|{envelope_part or encode_envelope(r.envelope)}|".encode()
    return body + b"%08x\n" % zlib.crc32(body)


def encode_envelope(envelope: Envelope) -> str:
    """The part of a line that all recipients of a message share."""
    e = envelope
    head = f"{e.received}|{_ORIGINS[e.origin]}|{_BODIES[e.body, e.smtputf8]}|"
    text = f"{e.zone}|{e.listener}|{e.client}|{e.user}|{e.tls}|{e.dsn}|{e.sender}"
    if not _plain(text, 6):
        text = "|".join(map(escape, (e.zone, e.listener, e.client, e.user, e.tls, e.dsn, e.sender)))
    return head + text


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


def decode(line: bytes) -> Recipient:
    """The recipient that a line records. Raises DecodeError."""
    fields = check(line)
    try:
        return _recipient(fields)
    except (ValueError, KeyError) as error:
        raise DecodeError(f"record line holds a field that cannot be: {line[:120]!r}") from error


def _recipient(fields: list[bytes]) -> Recipient:
    spid = int(fields[0], 16)
    text = [unescape(field.decode()) for field in fields[8:13]]
    area, linked = _AREA_OF[fields[2]]
    return Recipient(
        envelope=_envelope(spid, b"|".join(fields[13:23])),
        qid=int(fields[1]),
        area=area,
        due=int(fields[3]),
        size=int(fields[4]),
        attempts=int(fields[5]),
        unknowns=int(fields[6]),
        code=int(fields[7]),
        status=text[0],
        remote=text[1],
        reply=text[2],
        address=text[3],
        dsn=text[4],
        linked=linked,
    )


@lru_cache(maxsize=1024)
def _envelope(spid: int, part: bytes) -> Envelope:
    received, origin, body, *rest = part.decode().split("|")
    zone, listener, client, user, tls, dsn, sender = map(unescape, rest)
    kind, smtputf8 = _BODY_OF[body]
    return Envelope(
        spid=spid,
        received=int(received),
        origin=_ORIGIN_OF[origin],
        body=kind,
        smtputf8=smtputf8,
        zone=zone,
        listener=listener,
        client=client,
        user=user,
        tls=tls,
        dsn=dsn,
        sender=sender,
    )


def file_of(line: bytes) -> int:
    """The file number (see `names`) of the content of a line's recipient. The line is one that checks."""
    spid, qid, area, _ = line.split(b"|", 3)
    return names.number(int(spid, 16), int(qid) if _AREA_OF[area][1] else 0)


class Glance:
    """What scheduling needs of a line, read without decoding the rest; its checksum is not verified."""

    __slots__ = ("area", "due", "fields", "linked", "qid", "received", "size", "spid")

    def __init__(self, line: bytes) -> None:
        try:
            self.fields = line.split(b"|", 14)
            self.spid = int(self.fields[0], 16)
            self.qid = int(self.fields[1])
            self.area, self.linked = _AREA_OF[self.fields[2]]
            self.due = int(self.fields[3])
            self.size = int(self.fields[4])
            self.received = int(self.fields[13])
        except (ValueError, KeyError, IndexError) as error:
            raise DecodeError(f"not a record line: {line[:120]!r}") from error

    @property
    def domain(self) -> bytes:
        """The recipient's domain, lowered, escapes left in: good enough to look up plain domains."""
        return self.fields[11].rpartition(b"@")[2].lower()
