"""Looks into the queue: lists in parts, exact counts, one message with its content.

Nothing here costs the loop what the queue holds: lists and counts are made where the store reads itself,
see `core.ports.QueueStore`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from http import HTTPStatus

from mqcd.core.errors import ContentUnavailable, DecodeError, StoreUnavailable
from mqcd.core.model import Area, AreaStats, Recipient
from mqcd.core.ports import Clock, Content
from mqcd.core.queueing.spid import parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.daemon.control.api.binding import Given, Missing, refused
from mqcd.daemon.control.api.operation import MESSAGE
from mqcd.daemon.control.message import MOST_HEADER, Message, header_fields, parts_of
from mqcd.daemon.control.records import area_row, recipient_row, stats_row
from mqcd.daemon.control.resolving import Resolve, Resolved
from mqcd.daemon.storing import ServedStore
from mqcd.disk.durable import describe
from mqcd.ops.http.server import Answer, Request
from mqcd.queue.reading.snapshot import Item

ROWS = 100
"""In a part of a list, unless another number is asked for."""
MOST_RECIPIENTS = 1000
"""The most recipients of one message that are shown."""
_CHUNK = 1 << 16
_GONE = "no such message is known"


class Browsing:
    """The handlers."""

    def __init__(self, store: ServedStore, clock: Clock, resolve: Resolve) -> None:
        self._store = store
        self._clock = clock
        self._resolve = resolve

    async def recipients(self, _request: Request, given: Given) -> object:
        """A part of the list."""
        found = await self._selection(given, given.get("limit", ROWS))
        by_age = given.get("sort") == "age"
        part = await self._store.browse(found.selection, given.get("after", ""), by_age)
        rows = [recipient_row(each, self._store.in_flight(each)) for each in part.recipients]
        return {"rows": rows, "next": part.after, **found.fields()}

    async def count(self, _request: Request, given: Given) -> object:
        """How much is selected."""
        found = await self._selection(given)
        return {**stats_row(await self._store.measure(found.selection)), **found.fields()}

    def areas(self, _request: Request, _given: Given) -> object:
        """What each area holds."""
        stats = self._store.stats()
        return [area_row(area, stats.get(area, AreaStats())) for area in Area]

    async def message(self, request: Request, _given: Given) -> object:
        """One message, also one that has left the queue, as long as its events are kept."""
        spid = parse_spid(request.names["spid"])
        found = await self._recipients_of(spid)
        items = [Item(each, self._store.in_flight(each)) for each in found]
        header = await self._header(found[0]) if found and request.trusted else None
        try:
            history = await self._store.history(spid)
        except OSError as error:
            raise StoreUnavailable(f"events cannot be read: {describe(error)}") from error
        message = Message(spid=spid, items=items, header=header, history=history)
        if not message.known:
            raise Missing(_GONE)
        return parts_of(message)

    async def content(self, request: Request, _given: Given) -> Answer:
        """The octets, as they are read."""
        if not request.trusted:
            return refused(HTTPStatus.FORBIDDEN, "contents are for root and the server's user")
        found = await self._recipients_of(parse_spid(request.names["spid"]), 1)
        if not found:
            raise Missing(_GONE)
        content = await self._store.content(found[0])
        return Answer(chunks=_chunks(content), length=content.size, content_type=MESSAGE)

    async def _selection(self, given: Given, limit: int | None = None) -> Resolved:
        text = given.get("where", "").strip()
        try:
            where = parse_where(text, self._clock.now(), live=True) if text else None
        except DecodeError as error:
            raise DecodeError(f"where: {error}") from error
        return await self._resolve(Selection(where=where, limit=limit))

    async def _recipients_of(self, spid: int, limit: int = MOST_RECIPIENTS) -> list[Recipient]:
        part = await self._store.browse(Selection(spid=spid, limit=limit))
        return sorted(part.recipients, key=lambda each: each.qid)

    async def _header(self, recipient: Recipient) -> Sequence[tuple[str, str]] | None:
        """The fields of its header section; None where the content is not to be had."""
        try:
            content = await self._store.content(recipient)
        except StoreUnavailable:
            return None
        head = bytearray()
        try:
            while len(head) < MOST_HEADER and b"\r\n\r\n" not in head:
                if not (chunk := await content.read(_CHUNK)):
                    break
                head += chunk
        except ContentUnavailable:
            return None
        finally:
            content.close()
        return header_fields(bytes(head[:MOST_HEADER]))


async def _chunks(content: Content) -> AsyncGenerator[bytes, None]:
    try:
        while chunk := await content.read(_CHUNK):
            yield chunk
    finally:
        content.close()
