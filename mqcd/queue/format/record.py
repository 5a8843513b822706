"""The record line: one recipient as one line of text, in frames and in clusters alike. Pure.

    SPID|QID|area|due|size|attempts|unknowns|code|status|remote|reply|recipient|dsn|amended|
    received|origin|body|zone|listener|client|user|tls|dsn|labels|sender|CRC

`amended` holds the route that an operator chose and, behind a space, the trace of the last batch; mostly
nothing.

The dsn of a message has RET and ENVID, and behind them HOLDUNTIL and MT-PRIORITY where they are not 0. Fields
are UTF-8; `|`, `%` and control characters are written %XX, so that any legal address fits and the line ends
where it ends. CRC is the zlib.crc32 of what stands before, 8 hex digits. Decoding raises only DecodeError;
what it gives encodes to the same line again.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple

from mqcd.core.address import normal_domain
from mqcd.core.errors import DecodeError
from mqcd.core.labels import TENANT, value_of
from mqcd.core.model import Area, Body, Envelope, Origin, Recipient, Submission
from mqcd.queue.format import filenames


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
    amended: str
    received: str
    origin: str
    body: str
    zone: str
    listener: str
    client: str
    user: str
    tls: str
    message_dsn: str
    labels: str
    sender: str
    nothing: str
    """Where the checksum stood."""


FIELDS = len(Fields._fields)
_USUAL_BARS = {FIELDS - 1}
_at = Fields._fields.index
_QID, _AREA, _DUE, _SIZE = _at("qid"), _at("area"), _at("due"), _at("size")
_ADDRESS, _AMENDED, _RECEIVED = _at("address"), _at("amended"), _at("received")
_OWN = _RECEIVED
"""Fields of a recipient's own. What stands behind them most lines share with one before."""
_BEHIND = _RECEIVED + 1
_LISTENER, _LABELS = _at("listener") - _BEHIND, _at("labels") - _BEHIND
"""Among the fields behind the time of acceptance."""
MAX_LINE = 16 << 10
"""Octets of the longest line that goes from a cluster into the journal. No door lets anything in that makes
one as long; an entry takes four times as much, and the smallest segment a frame that such a line ends."""
_NUMBERS = 128
"""Octets, at most, of the numbers, bars and checksum of a new recipient's line."""
_ONCE = 2 << 10
"""Octets, at most, of an acceptance's key and of the destination of its first attempt."""
_SPECIAL = re.compile(r"[|%\x00-\x1f\x7f]")
_find_special = _SPECIAL.search
_ESCAPED = re.compile(r"%([0-9A-F]{2})")
_AREAS = {Area.INCOMING: "i", Area.DEFERRED: "d", Area.BOUNCES: "b", Area.HELD: "h", Area.REMOVED: "r"}
_LINKED, _WARNED = "l", "w"
_AREA_OF = {
    letter + link + warning: (area, bool(link), bool(warning))
    for area, letter in _AREAS.items()
    for link in ("", _LINKED)
    for warning in ("", _WARNED)
}
_usual_head = re.compile(rb"[0-9A-F]{16}\|\d{1,9}\|[bdhir]l?w?\|\d{1,18}\|\d{1,18}\|").match
"""The fields of a line as far as its size."""
_AREA_OF_OCTETS = {word.encode(): flags for word, flags in _AREA_OF.items()}
_ORIGINS = {Origin.SMTP: "s", Origin.REPORT: "r", Origin.IMPORT: "m"}
ORIGIN_OF = {letter: origin for origin, letter in _ORIGINS.items()}
_BODIES = {
    (Body.SEVEN, False): "7",
    (Body.EIGHT, False): "8",
    (Body.SEVEN, True): "7u",
    (Body.EIGHT, True): "8u",
}
_NO_CHANGE = "", "", ""
_BODY_OF = {word: pair for pair, word in _BODIES.items()}
_HOLD, _PRIORITY = "HOLDUNTIL=", "MT-PRIORITY="
_crc32 = zlib.crc32
_small = lru_cache(maxsize=1024)(int)
"""The number of a text that most lines have in common; it takes half as long as `int`."""


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

    `envelope_part` is what `encode_envelope` gave, for callers that encode many recipients of a message.
    """
    r = recipient
    spid, area = r.envelope.spid, _AREAS[r.area]
    if r.linked:
        area += _LINKED
    if r.warned:
        area += _WARNED
    head = f"{spid:016X}|{r.qid}|{area}|{r.due}|{r.size}|{r.attempts}|{r.unknowns}|{r.code}|"
    text = join(r.status, r.remote, r.reply, r.address, r.dsn, _by_operators(r))
    body = f"{head}{text}|{envelope_part or encode_envelope(r.envelope)}|".encode()
    return body + b"%08x\n" % zlib.crc32(body)


def _by_operators(recipient: Recipient) -> str:
    amended, route = recipient.amended, recipient.route
    return f"{route} {amended}" if amended or route else ""


def encode_envelope(envelope: Envelope) -> str:
    """The part of a line that all recipients of a message share."""
    e = envelope
    dsn = _parameters(e) if e.release or e.priority else e.dsn
    text = join(e.zone, e.listener, e.client, e.user, e.tls, dsn, e.labels, e.sender)
    return f"{e.received}|{_ORIGINS[e.origin]}|{_BODIES[e.body, e.smtputf8]}|{text}"


def encode_memo(envelope: Envelope, begun: str = "") -> bytes:
    """What only events of an acceptance have, and `begun`, the destination of its first attempt, if any."""
    if begun:
        return join(envelope.session, envelope.message_id, begun).encode()
    if envelope.session or envelope.message_id:
        return join(envelope.session, envelope.message_id).encode()
    return b""


def most_octets(submission: Submission) -> int:
    """No less than an acceptance has besides its content: its recipients' lines, its memo and its key."""
    envelope, addresses = submission.envelope, submission.recipients
    own = join(*addresses, *submission.recipient_dsn).encode()
    each = _NUMBERS + len(encode_envelope(envelope).encode())
    return len(own) + each * len(addresses) + len(encode_memo(envelope)) + _ONCE


def _parameters(envelope: Envelope) -> str:
    """What a record keeps of the parameters of MAIL."""
    e = envelope
    words = (
        e.dsn,
        f"{_HOLD}{e.release}" if e.release else "",
        f"{_PRIORITY}{e.priority}" if e.priority else "",
    )
    return " ".join(filter(None, words))


def _taken(words: list[str], keyword: str) -> int:
    """The number of the last word, if it has this keyword: it is taken off; else 0."""
    return int(words.pop().removeprefix(keyword)) if words and words[-1].startswith(keyword) else 0


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

    Raises DecodeError. Looking at the text first spares decoding what is not wanted.
    """
    end = len(line) - 9 if line.endswith(b"\n") else len(line) - 8
    body = line[:end]
    if line[end : end + 8] != b"%08x" % _crc32(body):
        raise DecodeError(f"record line fails its checksum: {line[:120]!r}")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise _impossible(line) from error


def sound_all(lines: Sequence[bytes]) -> Sequence[str | None]:
    """The same of lines without line feeds; None where `verify` or `sound` would raise: no reader shows what
    a claim would put into quarantine.

    All checksums are compared at once, which takes half the time, and nearly all lines have the usual look:
    only where one differs, each is examined. A time of acceptance that is none is left to what reads it.
    """
    bodies = [line[:-8] for line in lines]
    sums = struct.pack(f">{len(bodies)}I", *map(_crc32, bodies)).hex().encode()
    if sums == b"".join([line[-8:] for line in lines]) and _look_usual(lines):
        with suppress(UnicodeDecodeError):
            return [body.decode() for body in bodies]
    return [_sound_text(line) for line in lines]


def _look_usual(lines: Sequence[bytes]) -> bool:
    """Whether all lines are `sound` at first glance, if their checksums fit."""
    return (
        max(map(len, lines), default=0) < MAX_LINE
        and all(map(_usual_head, lines))
        and {line.count(b"|") for line in lines} <= _USUAL_BARS
    )


def _sound_text(line: bytes) -> str | None:
    try:
        sound(line + b"\n")
        return verify(line)
    except DecodeError:
        return None


def _impossible(line: bytes | str) -> DecodeError:
    return DecodeError(f"record line holds a field that cannot be: {line[:120]!r}")


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


def halves(text: str) -> list[str]:
    """A recipient's own fields in what `verify` gave, escapes undone, and the shared part as it stands.

    For callers that keep what a shared part was decoded to, see `shared_fields`. Raises DecodeError.
    """
    parts = text.split("|", _OWN)
    if "%" in text:
        parts[:_OWN] = map(unescape, parts[:_OWN])
    if len(parts) <= _OWN:
        raise DecodeError(f"record line has {len(parts)} fields, not {FIELDS}: {text[:120]!r}")
    return parts


def shared_fields(part: str) -> Fields:
    """The fields of a shared part; those of a recipient's own are empty. Raises DecodeError."""
    return fields("|" * _OWN + part)


def area_of(word: str) -> Area:
    """The area that a line's field names. Raises KeyError."""
    return _AREA_OF[word][0]


def decode(line: bytes) -> Recipient:
    """The recipient that a line records. Raises DecodeError."""
    return parse(verify(line))


def parse(text: str) -> Recipient:
    """The recipient in what `verify` gave. Raises DecodeError."""
    # Field by field: with keywords it would take twice as long.
    draft: Any = Recipient.__new__(Recipient)
    try:
        (
            spid, qid, area, due, size, attempts, unknowns, code, status, remote, reply, address, dsn,
            by_operators, part
        ) = text.split("|", _OWN)  # fmt: skip
        draft.envelope = _envelope(spid, part)
        draft.area, draft.linked, draft.warned = _AREA_OF[area]
        draft.qid = int(qid)
        draft.due = int(due)
        draft.size = int(size)
        draft.attempts = _small(attempts)
        draft.unknowns = _small(unknowns)
        draft.code = _small(code)
    except (ValueError, KeyError) as error:
        raise _impossible(text) from error
    if "%" in text:
        own = status, remote, reply, address, dsn, by_operators
        status, remote, reply, address, dsn, by_operators = map(unescape, own)
    draft.status = status
    draft.remote = remote
    draft.reply = reply
    draft.address = address
    draft.dsn = dsn
    draft.route, _, draft.amended = by_operators.partition(" ") if by_operators else _NO_CHANGE
    recipient: Recipient = draft
    return recipient


@lru_cache(maxsize=1024)
def _envelope(spid: str, part: str) -> Envelope:
    draft: Any = Envelope.__new__(Envelope)
    received, origin, body, zone, listener, client, user, tls, dsn, labels, sender, nothing = part.split("|")
    if nothing:
        raise ValueError("a field too many")
    if "%" in part:
        words = zone, listener, client, user, tls, dsn, labels, sender
        zone, listener, client, user, tls, dsn, labels, sender = map(unescape, words)
    draft.spid = int(spid, 16)
    draft.received = int(received)
    draft.origin = ORIGIN_OF[origin]
    draft.body, draft.smtputf8 = _BODY_OF[body]
    draft.zone = zone
    draft.listener = listener
    draft.client = client
    draft.user = user
    draft.tls = tls
    draft.release = draft.priority = 0
    if _HOLD in dsn or _PRIORITY in dsn:
        kept = dsn.split(" ")
        draft.priority = _taken(kept, _PRIORITY)
        draft.release = _taken(kept, _HOLD)
        dsn = " ".join(kept)
    draft.dsn = dsn
    draft.labels = labels
    draft.sender = sender
    draft.session = draft.message_id = ""
    envelope: Envelope = draft
    return envelope


def key_of(line: bytes) -> tuple[int, int]:
    """SPID and QID of a line's recipient. Raises DecodeError."""
    try:
        spid, qid, _ = line.split(b"|", 2)
        return int(spid, 16), int(qid)
    except ValueError as error:
        raise DecodeError(f"not a record line: {line[:120]!r}") from error


def file_of(line: bytes) -> int:
    """The file number (see `filenames`) of the content of a line's recipient. Raises DecodeError."""
    try:
        spid, qid, area, _ = line.split(b"|", 3)
        return filenames.number(int(spid, 16), int(qid) if _AREA_OF_OCTETS[area][1] else 0)
    except (ValueError, KeyError) as error:
        raise DecodeError(f"not a record line: {line[:120]!r}") from error


class Glance:
    """What scheduling needs of a line, read without decoding the rest; its checksum is not verified."""

    __slots__ = ("_fields", "area", "due", "linked", "qid", "received", "size", "spid")

    def __init__(self, line: bytes) -> None:
        # As far as the time of acceptance: the rest stays one field, which `tenant` divides.
        self._fields = fields = line.split(b"|", _BEHIND)
        try:
            self.spid = int(fields[0], 16)
            self.qid = int(fields[_QID])
            self.area, self.linked, _ = _AREA_OF_OCTETS[fields[_AREA]]
            self.due = int(fields[_DUE])
            self.size = int(fields[_SIZE])
            self.received = int(fields[_RECEIVED])
        except (ValueError, KeyError, IndexError) as error:
            raise DecodeError(f"not a record line: {line[:120]!r}") from error

    @property
    def domain(self) -> str:
        """The recipient's `lane_key`."""
        if (by_operators := self._fields[_AMENDED]) and not by_operators.startswith(b" "):
            return unescape(by_operators.partition(b" ")[0].decode("utf-8", "replace"))
        _, at, domain = self._fields[_ADDRESS].rpartition(b"@")
        return _domain(domain) if at else ""

    @property
    def tenant(self) -> str:
        """See `Envelope.tenant`."""
        behind = self._fields[_BEHIND].split(b"|", _LABELS + 1)
        return _tenant(behind[_LISTENER], behind[_LABELS]) if len(behind) > _LABELS + 1 else ""


def sound(line: bytes) -> Glance:
    """A glance at a line that checks and that the journal can hold: its length, its QID, its due time.

    It has no clock: earlier due times (`ClusterIndex.bring_forward`) apply after it. Raises DecodeError.
    """
    check(line)
    glance = Glance(line)
    if len(line) > MAX_LINE or glance.qid >> 32 or glance.due < 0:
        raise _impossible(line)
    return glance


@lru_cache(maxsize=1024)
def _tenant(listener: bytes, labels: bytes) -> str:
    text = unescape(labels.decode("utf-8", "replace"))
    return intern(value_of(text, TENANT) or unescape(listener.decode("utf-8", "replace")))


@lru_cache(maxsize=1024)
def _domain(field: bytes) -> str:
    """Most lines have the domain of one before."""
    return intern(normal_domain(unescape(field.decode("utf-8", "replace"))))
