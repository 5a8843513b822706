"""The events of a frame as lines of JSON, as they stand in the event log. Pure.

A frame gives the same lines whenever it is read. From the first of its entries that cannot be read on it
gives none, and is counted: its checksum fits, so its writer and this program disagree about the format.

Each message that passes has three events, and the processor time that they take is missing for mail.
So a line is put together from the text of record and note, without a recipient, a dictionary or an
encoder between: text without `%`, `"` and backslash is the same in a record and in JSON, because a record
holds control characters only as `%XX`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from mqcd.core.address import normal_domain
from mqcd.core.errors import DecodeError
from mqcd.core.events import SCHEMA_VERSION, Verb, format_time, site_of
from mqcd.core.labels import TENANT, value_of
from mqcd.core.smtp.classes import class_of
from mqcd.eventlog.files import Source
from mqcd.eventlog.pseudonyms import Pseudonyms
from mqcd.queue.format import record, verdict
from mqcd.queue.format.frame import ALIVE, Entry, Header, Kind, Mark, read_begun
from mqcd.queue.format.transitions import VERB_OF, entries, submissions

_quoted = json.JSONEncoder(ensure_ascii=False).encode
_KEPT = 4096
"""Record lines remembered: a verdict at the first attempt repeats the line of the acceptance."""
_PERCENT, _QUOTE, _BACKSLASH = b'%"\\'
_ADDRESS, _USER, _LABELS, _SENDER = map(record.Fields._fields.index, ("address", "user", "labels", "sender"))
"""Where they stand in a record line."""


class EventText:
    """Makes lines of frames, and counts them."""

    def __init__(self, source: Source) -> None:
        self._head = f'{{"v":{SCHEMA_VERSION},"id":{_quoted(f"{source.node}/{source.shard}/")[:-1]}'
        self._names = Pseudonyms(source.key) if source.key else None
        self.totals: Counter[Verb] = Counter()
        """Events of each verb so far."""
        self.unreadable = 0
        """Frames that could not be written whole."""
        self.trouble = ""
        """The first of them, and why."""
        self._at, self._time = 0, format_time(0)

    def lines(self, header: Header, body: memoryview) -> list[str]:
        """The events of one frame, each with its line feed."""
        made: list[str] = []
        try:
            if header.kind is Kind.BEGUN:
                self._begun(header, body, made)
            else:
                self._changes(header, body, made)
        except DecodeError as error:
            self.unreadable += 1
            self.trouble = self.trouble or f"sequence {header.sequence}, {header.kind.name}: {error}"
        return made

    def _written(self, at: int) -> str:
        # Frames of one group have mostly the same time.
        if at != self._at:
            self._at, self._time = at, format_time(at)
        return self._time

    def _line(self, verb: Verb, sequence: int, time: str, rest: str) -> str:
        self.totals[verb] += 1
        return f'{self._head}{sequence}","event":"{verb}","at":"{time}"{rest}}}\n'

    def _changes(self, header: Header, body: memoryview, made: list[str]) -> None:
        sequence, time = header.sequence, self._written(header.at)
        accepted, offset = submissions(header.kind, body)
        for part in accepted:
            lines = part.lines.splitlines(keepends=True)
            destination = self.accepted(sequence, header.at, lines, part.memo, made)
            sequence += len(lines)
            if part.attempted:
                keys = [(*record.key_of(line), 1) for line in lines]
                self.attempted(sequence, header.at, keys, destination, made)
                sequence += len(lines)
        left = header.sequence + header.entries - sequence
        for _, entry in entries(header.kind, body, offset, left):
            verb = VERB_OF.get(entry.mark)
            if verb is not None:
                made.append(self._line(verb, sequence, time, _verdict(entry, header.at, self._names)))
            sequence += 1

    def _begun(self, header: Header, body: memoryview, made: list[str]) -> None:
        destination, begun = read_begun(body, header.entries)
        keys = [(entry.spid, entry.qid, entry.attempt) for entry in begun]
        self.attempted(header.sequence, header.at, keys, destination, made)

    # ------------------------------------------------------------ one change

    def accepted(self, sequence: int, at: int, lines: Sequence[bytes], memo: bytes, made: list[str]) -> str:
        """Add the events of a new message, from `sequence` on. Returns the destination in the memo."""
        time = self._written(at)
        known, destination = _memo(memo, self._names)
        of_message = f',"recipients":{len(lines)}{known}'
        for line in lines:
            of_record = _common(line, self._names)
            rest = f"{of_record.recipient}{of_record.zone}{of_record.tls}{of_message}"
            made.append(self._line(Verb.ACCEPTED, sequence, time, rest))
            sequence += 1
        return destination

    def attempted(
        self,
        sequence: int,
        at: int,
        attempts: Iterable[tuple[int, int, int]],
        destination: str,
        made: list[str],
    ) -> None:
        """Add the events of attempts that begin: of each its SPID, QID and number."""
        time, where = self._written(at), _where(destination)
        for spid, qid, number in attempts:
            made.append(self._line(Verb.ATTEMPTED, sequence, time, _attempt(spid, qid, number, where)))
            sequence += 1

    def ended(self, sequence: int, at: int, entry: Entry) -> str:
        """The event of a verdict, or of an unknown outcome."""
        return self._line(VERB_OF[entry.mark], sequence, self._written(at), _verdict(entry, at, self._names))


def _attempt(spid: int, qid: int, attempt: int, where: str) -> str:
    """What follows the time in the event of an attempt."""
    return f',"spid":"{spid:016X}","qid":{qid},"attempt":{attempt}{where}'


class _Common(NamedTuple):
    """What events say of a record."""

    recipient: str
    """Fields from `spid` on, but for `zone` and `tls`; they begin with a comma, as all parts do."""
    zone: str
    """The one that a header chose."""
    tls: str
    """That of the session it came in by."""
    received: int
    attempts: int
    due: int
    addresses: tuple[str, ...]
    """Sender and recipient in clear, where they are to be hidden."""


@lru_cache(maxsize=_KEPT)
def _common(line: bytes, names: Pseudonyms | None) -> _Common:
    """From a line whose frame checks: then so does the line. Its numbers stand as `record` writes them."""
    try:
        fields = line.decode().split("|")
        if len(fields) != record.FIELDS:
            raise ValueError(f"{len(fields)} fields")
        address = record.unescape(fields[_ADDRESS])
        addresses: tuple[str, ...] = ()
        if names is not None:
            addresses = record.unescape(fields[_SENDER]), address
            for place in (_ADDRESS, _USER, _SENDER):
                fields[place] = names.address(record.unescape(fields[place]))
        tenant = value_of(record.unescape(fields[_LABELS]), TENANT) if fields[_LABELS] else ""
        if tenant and names is not None:
            tenant = names.address(tenant)
        if not _is_json(line):
            fields = [_json(each) for each in fields]
        domain = _name(normal_domain(address[address.rfind("@") + 1 :])) if "@" in address else '""'
        of = record.Fields._make(fields)
        recipient = (
            f',"spid":"{of.spid}","qid":{of.qid},"sender":"{of.sender}","recipient":"{of.address}",'
            f'"domain":{domain},"size":{of.size},"origin":"{record.ORIGIN_OF[of.origin]}"'
            f"{_field('listener', of.listener)}{_field('client', of.client)}{_field('user', of.user)}"
            f"{_field('tenant', _quoted(tenant)[1:-1])}"
        )
        return _Common(
            recipient=recipient,
            zone=_field("zone", of.zone),
            tls=_field("tls", of.tls),
            received=int(of.received),
            attempts=int(of.attempts),
            due=int(of.due),
            addresses=addresses,
        )
    except (ValueError, KeyError) as error:
        raise DecodeError(f"not a record line: {line[:120]!r}") from error


def _memo(memo: bytes, names: Pseudonyms | None) -> tuple[str, str]:
    """Fields of an acceptance that no record keeps, and the destination of an attempt that begins with it."""
    if not memo:
        return "", ""
    try:
        session, message_id, *rest = memo.decode().split("|", 2)
    except ValueError as error:
        raise DecodeError(f"not the memo of a message: {memo[:120]!r}") from error
    if names is not None and message_id:
        message_id = names.address(record.unescape(message_id))
    if not _is_json(memo):
        session, message_id = _json(session), _json(message_id)
    destination = record.unescape(rest[0]) if rest else ""
    return _field("session", session) + _field("message_id", message_id), destination


def _verdict(entry: Entry, at: int, names: Pseudonyms | None) -> str:
    """What follows the time in the event of one entry."""
    made = _common(entry.line, names)
    queued = f',"queued_ms":{max(0, at - made.received)}'
    mark = entry.mark
    if mark is Mark.UNKNOWN:
        due = format_time(made.due)
        return f'{made.recipient}{made.zone}{made.tls}{queued},"attempt":{made.attempts},"due":"{due}"'
    if mark in verdict.AMENDMENTS:
        return f"{made.recipient}{made.zone}{made.tls}{queued}{_amendment(entry, names, made.addresses)}"
    note = verdict.split(entry.note)
    route, connect_ms, attempt_ms, code, status, extra, reply = note
    if names is not None and reply:
        reply = _quoted(names.text(record.unescape(reply), *made.addresses))[1:-1]
    elif not _is_json(entry.note):
        reply = _json(reply)
    if not _is_json(entry.note):
        status, extra = _json(status), _json(extra)
    if mark is Mark.REPORTED:
        return f'{made.recipient}{made.zone}{made.tls}{queued},"report":"{extra}"'
    if mark is Mark.DISCARDED:
        return f'{made.recipient}{made.zone}{made.tls}{queued},"reason":"{extra}"{_field("undone", reply)}'
    attempt = made.attempts if entry.flags & ALIVE else made.attempts + 1
    # An attempt's event has the zone it left by and the session with the next hop: both are in the route.
    return (
        f'{made.recipient}{queued},"attempt":{attempt}{_route(route)}{_codes(code, status)}'
        f'{_field("reply", reply)},"connect_ms":{connect_ms},"attempt_ms":{attempt_ms}'
        f"{EXTRA[mark](extra)}"
    )


def _amendment(entry: Entry, names: Pseudonyms | None, addresses: tuple[str, ...]) -> str:
    """What the event of an operator's action says besides."""
    note = verdict.split_amendment(entry.note)
    reason, target = note.reason, note.target
    if names is not None:
        reason = names.text(reason, *addresses)
        target = names.address(target) if "@" in target else target
    more = ""
    if entry.mark is Mark.REMOVED or entry.mark is Mark.RESCHEDULED:
        name = "due" if entry.mark is Mark.RESCHEDULED else "until"
        more = f',"{name}":"{format_time(_number(note.until))}"'
    elif entry.mark is Mark.REDIRECTED:
        more = _field("target", _quoted(target)[1:-1])
    elif entry.mark is Mark.RESTORED:
        more = _field("undoes", _quoted(target)[1:-1]) + _field("undone", note.undone)
    batch = _field("batch", _quoted(note.batch)[1:-1]) + _field("by", _quoted(note.by)[1:-1])
    return f"{batch}{_field('reason', _quoted(reason)[1:-1])}{more}"


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise DecodeError(f"a time that is none: {text[:40]!r}") from error


@lru_cache(maxsize=_KEPT)
def _route(route: str) -> str:
    """Where an attempt went. Many go the same way."""
    destination, *fields = route.split("|")
    rest = [_field(name, _json(value)) for name, value in zip(verdict.ROUTE[1:], fields, strict=True)]
    return _where(record.unescape(destination)) + "".join(rest)


@lru_cache(maxsize=_KEPT)
def _where(destination: str) -> str:
    """A destination, and the site in its name."""
    site = site_of(destination)
    return _field("destination", _quoted(destination)[1:-1]) + _field("site", _quoted(site)[1:-1])


@lru_cache(maxsize=_KEPT)
def _codes(code: str, status: str) -> str:
    """What a reply's codes say; there are few of them."""
    if not code.isdecimal():
        raise DecodeError(f"a note whose reply code is none: {code[:40]!r}")
    number = "" if code == "0" else f',"code":{code}'
    return f'{number}{_field("status", status)},"class":"{class_of(int(code), status)}"'


def _deferral(extra: str) -> str:
    due, doubt, _ = extra.partition("?")
    try:
        return f',"due":"{format_time(int(due))}"' + (',"possibly_delivered":true' if doubt else "")
    except ValueError as error:
        raise DecodeError(f"a deferral's note without its due time: {extra[:40]!r}") from error


def _nothing(_extra: str) -> str:
    return ""


EXTRA: dict[Mark, Callable[[str], str]] = {
    Mark.DELIVERED: _nothing,
    Mark.DEFERRED: _deferral,
    Mark.BOUNCED: _nothing,
    Mark.EXPIRED: _nothing,
}
"""What the note of an attempt's end says besides, as fields of its event."""


def _field(name: str, value: str) -> str:
    return f',"{name}":"{value}"' if value else ""


def _is_json(text: bytes) -> bool:
    """Whether text that is escaped as in a record stands in JSON as it is."""
    return not (_PERCENT in text or _QUOTE in text or _BACKSLASH in text)


def _json(text: str) -> str:
    """The same of text with any characters."""
    return _quoted(record.unescape(text))[1:-1]


@lru_cache(maxsize=_KEPT)
def _name(name: str) -> str:
    """JSON of a domain: there are few of them."""
    return _quoted(name)
