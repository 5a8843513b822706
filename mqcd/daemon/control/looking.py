"""Pages by which commands look into a queue that no other process can read: any but the clustered-file queue.

POST /v1/records, a selection as `selections` has it, gives a line for each recipient: `+` if it is in flight,
else `-`, then its record. POST /v1/moment gives all of them, and the events that are in no event file, as
`stores.queue.moment` packs them. POST /v1/unfiled?spid=SPID gives the events of one message that are in no
event file. POST /v1/content?spid=SPID&at=OFFSET gives the next octets of a message's content, none at its
end; it is for root and the server's user alone.
"""

from __future__ import annotations

import os
from http import HTTPStatus
from urllib.parse import parse_qs

from mqcd.core.errors import DecodeError
from mqcd.core.ports import Content
from mqcd.core.queueing.spid import parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.actions.orders import fields_in
from mqcd.daemon.control.api.binding import Missing, refused
from mqcd.daemon.control.selections import parse_selection
from mqcd.ops.http.server import Answer, Request
from mqcd.queue.format import record
from mqcd.stores.queue.moment import IN_FLIGHT, WAITS
from mqcd.stores.queue.stored_queue import StoredQueue

RECORDS, MOMENT, CONTENT, UNFILED = "/v1/records", "/v1/moment", "/v1/content", "/v1/unfiled"
PIECE = 8 << 20
"""Octets of content that one answer holds at most."""
_OCTETS = "application/octet-stream"


class Looking:
    """The pages. They raise as an `api.binding.Handler` does."""

    def __init__(self, store: StoredQueue) -> None:
        self._store = store

    async def moment(self, _request: Request) -> Answer:
        """All recipients, and the events that are in no file."""
        return Answer(body=self._store.moment().pack(), content_type=_OCTETS)

    async def events(self, request: Request) -> Answer:
        """The events of a message that are in no file."""
        spid = parse_spid(parse_qs(request.query).get("spid", [""])[0])
        return Answer(body=b"".join(self._store.unfiled(spid)), content_type=_OCTETS)

    async def records(self, request: Request) -> Answer:
        """The recipients that are selected."""
        selection = parse_selection(fields_in(request))
        lines = [
            (IN_FLIGHT if self._store.in_flight(each) else WAITS) + record.encode(each)
            async for each in self._store.scan(selection)
        ]
        return Answer(body=b"".join(lines), content_type=_OCTETS)

    async def content(self, request: Request) -> Answer:
        """A piece of a message's content."""
        if request.uid not in (0, os.geteuid()):
            return refused(HTTPStatus.FORBIDDEN, "contents are for root and the server's user")
        fields = parse_qs(request.query)
        try:
            spid, at = parse_spid(fields.get("spid", [""])[0]), int(fields.get("at", ["0"])[0])
        except ValueError as error:
            raise DecodeError(str(error)) from error
        found = [each async for each in self._store.scan(Selection(spid=spid, limit=1))]
        if not found:
            raise Missing("no such message is in the queue")
        content = await self._store.content(found[0])
        try:
            return Answer(body=await _piece(content, at), content_type=_OCTETS)
        finally:
            content.close()


async def _piece(content: Content, at: int) -> bytes:
    while at > 0 and (passed := await content.read(min(at, PIECE))):
        at -= len(passed)
    piece = bytearray()
    while len(piece) < PIECE and (chunk := await content.read(PIECE - len(piece))):
        piece += chunk
    return bytes(piece)
