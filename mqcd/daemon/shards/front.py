"""The front process of several shards: it serves the pages of all of them as those of one server.

Each page asks the server process of every shard, on its own socket, and makes one answer of theirs. A shard
that does not answer makes /readyz and /healthz say so, and is left out of the figures.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from mqcd import __version__
from mqcd.core.errors import DecodeError, MqcdError
from mqcd.core.queueing.spid import parse_spid, shard_of
from mqcd.daemon.control.actions.orders import Order, completed, fields_in, parse_order, record, take_dry_run
from mqcd.daemon.control.actions.ruling import RULES
from mqcd.daemon.control.api.binding import Given, Handler, Missing, bind, refused
from mqcd.daemon.control.api.openapi import describe
from mqcd.daemon.control.api.operation import EVENTS, LINES
from mqcd.daemon.control.api.table import TABLE
from mqcd.daemon.control.asking import ACT_S, ASK_S, Question, Reply, ask, begin, merged, read_whole
from mqcd.daemon.control.browsing import ROWS
from mqcd.daemon.shards import merging
from mqcd.daemon.shards.division import control_path
from mqcd.disk.durable import Disk
from mqcd.disk.durable import describe as describe_error
from mqcd.net.clock import SystemClock
from mqcd.ops.http.server import Answer, Page, Pages, Request
from mqcd.ops.metrics.merge import Merger
from mqcd.ops.metrics.metrics import OPENMETRICS

log = logging.getLogger("mqcd.daemon")

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"

Replies = Mapping[int, Reply]
"""By shard."""
Merge = Callable[[Sequence[Any]], object]
"""Makes one value of those of several shards, in their order."""


class Unanswered(MqcdError):
    """Shards do not answer, or refuse: a line for each."""

    def __init__(self, replies: Replies) -> None:
        lines = [
            f"shard {shard}: {line}"
            for shard, reply in replies.items()
            if not reply.good
            for line in reply.body.decode("utf-8", "replace").splitlines() or ["it does not answer"]
        ]
        super().__init__("\n".join(lines))


class Front:
    """The pages of all shards."""

    def __init__(
        self, control: Path, shards: Sequence[int], listening: int, batches: Path, grace_ms: int
    ) -> None:
        """`control`: the server's control socket, beside which each shard has its own. `listening`: how many
        of them take mail, the first ones. `batches`: where batches are recorded; `grace_ms`: how long what is
        removed can be restored."""
        self._listening = list(shards[:listening])
        self._batches_in = batches
        self.grace_ms = grace_ms
        self._paths = {shard: control_path(control, shard) for shard in shards}
        self._pausing = asyncio.Lock()
        self._merger = Merger()
        self._merging = asyncio.Lock()
        self._next = -1
        """Place of the shard that took the last message of the API."""

    def for_ops(self) -> Mapping[str, Page]:
        """By path."""
        return {"/metrics": self._metrics, "/healthz": self._state, "/readyz": self._state}

    def for_commands(self) -> Pages:
        """By path: those of the ops listener too."""
        return {**self.for_ops(), **bind(TABLE, self._handlers())}

    def _handlers(self) -> Mapping[str, Handler]:
        return {
            "listRecipients": self._recipients,
            "countRecipients": self._merged(merging.totals, ACT_S, whole=True),
            "listAreas": self._merged(merging.areas),
            "showMessage": self._of_shard(ask),
            "readContent": self._of_shard(begin),
            "addMessage": self._add_message,
            "beginBatch": self._batch,
            "listBatches": self._batches,
            "listDestinations": self._merged(lambda found: merging.destinations(_rows(found))),
            "listLanes": self._merged(lambda found: sorted(_rows(found), key=lambda row: -row["waiting"])),
            "listStuck": self._merged(lambda found: sorted(_rows(found), key=lambda row: -row["since_ms"])),
            "explain": self._explain,
            "listRules": self._merged(merging.rules),
            "addRule": self._add_rule,
            "cancelRule": self._change_rules,
            "pause": self._pause,
            "showState": self._merged(merging.state, whole=True),
            "listenToEvents": self._events,
            "trace": self._events,
            "listConnections": self._connections,
            "listSettings": self._merged(lambda found: found[0]),
            "showLogLevel": self._merged(lambda found: found[0]),
            "setLogLevel": self._merged(lambda found: found[0], ACT_S, whole=True),
            "describe": lambda _, __: describe(TABLE, __version__),
        }

    # ------------------------------------------------------------ asking

    async def _all(self, request: Request, seconds: float = ASK_S) -> Replies:
        return await self._ask_all(_passed_on(request, seconds))

    async def _ask_all(self, question: Question) -> Replies:
        replies = await asyncio.gather(*(ask(path, question) for path in self._paths.values()))
        return dict(zip(self._paths, replies, strict=True))

    def _merged(self, merge: Merge, seconds: float = ASK_S, *, whole: bool = False) -> Handler:
        """A page that is one value of those of the shards that answer; of all of them if `whole`."""

        async def page(request: Request, _: Given) -> object:
            return merge(_values(await self._all(request, seconds), whole=whole))

        return page

    # ------------------------------------------------------------ pages

    async def _metrics(self, request: Request) -> Answer:
        replies = await self._ask_all(Question(target="/metrics", by=request.by))
        good = {shard: reply.body.decode() for shard, reply in replies.items() if reply.good}
        if not good:
            return refused(HTTPStatus.SERVICE_UNAVAILABLE, Unanswered(replies))
        newer = OPENMETRICS in request.accept
        async with self._merging:
            body = await asyncio.to_thread(self._merger.merge, good, open_metrics=newer)
        return Answer(body=body, content_type=_OPENMETRICS if newer else _EXPOSITION)

    async def _state(self, request: Request) -> Answer:
        replies = await self._all(request)
        if all(reply.good for reply in replies.values()):
            return Answer(body=b"ok\n")
        return refused(HTTPStatus.SERVICE_UNAVAILABLE, Unanswered(replies))

    async def _explain(self, request: Request, _: Given) -> Answer:
        replies = await self._all(request, seconds=2 * ASK_S)
        good = [reply.body for reply in replies.values() if reply.good]
        if not good:
            _raise_bad(replies)
            raise Unanswered(replies)
        # Of an address or domain each shard says first where its mail would go: that is the same for all.
        lines = good[0].splitlines()
        general = [line for line in lines[:1] if "suppressed" in json.loads(line)]
        for body in good[1:]:
            lines += body.splitlines()[len(general) :]
        return Answer(body=b"".join(line + b"\n" for line in lines), content_type=LINES)

    async def _connections(self, request: Request, _: Given) -> object:
        replies = await self._all(request)
        rows = [
            {**row, "shard": shard}
            for shard, reply in replies.items()
            if reply.good
            for row in json.loads(reply.body)
        ]
        return rows or _values(replies)[0]

    async def _recipients(self, request: Request, given: Given) -> object:
        limit = given.get("limit", ROWS)
        if given.get("sort") == "age":
            replies = await self._all(request, ACT_S)
            found = merging.oldest(_values(replies), limit)
            return {**found, **_left_out(replies)}
        return await self._in_order(request, given, limit)

    async def _in_order(self, request: Request, given: Given, limit: int) -> object:
        """One shard after the other; `after` is the shard's number and its own."""
        number, _, after = given.get("after", "").partition("/")
        if number and not (number.isdecimal() and int(number) in self._paths):
            raise DecodeError("after: expected what an earlier answer gave as next")
        ahead = [shard for shard in self._paths if not number or shard >= int(number)]
        rows: list[Any] = []
        silent: dict[int, Reply] = {}
        for shard in ahead:
            if len(rows) == limit:
                return {"rows": rows, "next": f"{shard}/", **_left_out(silent)}
            query = {**given, "limit": limit - len(rows), "after": after}
            target = f"{request.path}?{urlencode(query)}"
            reply = await ask(self._paths[shard], Question(target=target, by=request.by, seconds=ACT_S))
            after = ""
            _raise_bad({shard: reply})
            if not reply.good:
                silent[shard] = reply
                continue
            part = json.loads(reply.body)
            rows += part["rows"]
            if part["next"] is not None:
                return {"rows": rows, "next": f"{shard}/{part['next']}", **_left_out(silent)}
        if len(silent) == len(self._paths):
            raise Unanswered(silent)
        return {"rows": rows, "next": None, **_left_out(silent)}

    def _of_shard(self, ask_one: Callable[[Path, Question], Awaitable[Reply]]) -> Handler:
        """A page of a message, which is asked for where its SPID says that it is, and then elsewhere: it may
        have been moved."""

        async def page(request: Request, _: Given) -> Answer:
            own = shard_of(parse_spid(request.names["spid"]))
            silent: dict[int, Reply] = {}
            for shard in sorted(self._paths, key=lambda shard: shard != own):
                reply = await ask_one(self._paths[shard], _passed_on(request, ACT_S))
                gone = reply.status == HTTPStatus.NOT_FOUND
                if gone or not reply.status or reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    whole = await read_whole(reply)
                    if not gone:
                        silent[shard] = whole
                    continue
                return _answer(reply)
            if silent:
                raise Unanswered(silent)
            raise Missing("no recipient of this message is in the queue")

        return page

    async def _batch(self, request: Request, _: Given) -> object:
        """Every shard takes its part of a batch, by one name; all of them carry it out. For one that does not
        answer its part is recorded: it takes it up when it is back. `left_out` names it.

        A limit is divided among those that answer by what each would change now: never more are changed than
        it says.
        """
        fields = fields_in(request)
        dry_run = take_dry_run(fields)
        order = parse_order(fields, dry_run=dry_run)
        order = replace(order, batch=replace(order.batch, id="", by=""))
        order = completed(order, by=request.by, now=SystemClock().now(), grace_ms=self.grace_ms)
        limit = order.selection.limit
        parts = dict.fromkeys(self._paths, order)
        if limit is None:
            replies = await self._ordered(request, parts, dry_run)
        else:
            replies = await self._counted(request, order, limit)
            if not dry_run:
                changes = zip(_shards(replies), _values(replies), strict=True)
                parts = {shard: _limited(order, each["changed"]) for shard, each in changes}
                replies = {**replies, **await self._ordered(request, parts, False)}
        whole = merging.batch(_values(replies))
        silent = {shard: reply for shard, reply in replies.items() if not reply.good}
        if not silent:
            return whole
        consequence = "it is not counted" if dry_run else "with a limit its mail is left alone"
        if limit is None and not dry_run:
            consequence = await asyncio.to_thread(self._record, order, silent)
        return {**whole, "left_out": [f"{each}; {consequence}" for each in _lines(silent)]}

    def _record(self, order: Order, shards: Iterable[int]) -> str:
        """Record the parts of shards that are out of service; says what follows."""
        try:
            for shard in shards:
                record(Disk(), self._batches_in, shard, order)
        except OSError as error:
            log.error("batch %s is not recorded for all shards: %s", order.batch.id, describe_error(error))
            return f"its part cannot be recorded ({describe_error(error)}): ask for it again later"
        return "its part is carried out when it is back in service"

    async def _ordered(self, request: Request, parts: Mapping[int, Order], dry_run: bool) -> Replies:
        """What the shards answer to their parts of a batch."""
        bodies = [json.dumps({**order.fields(), "dry_run": dry_run}).encode() for order in parts.values()]
        asked = [
            ask(self._paths[shard], replace(_passed_on(request, ACT_S), body=body))
            for shard, body in zip(parts, bodies, strict=True)
        ]
        return dict(zip(parts, await asyncio.gather(*asked), strict=True))

    async def _counted(self, request: Request, order: Order, limit: int) -> Replies:
        """What each shard would change of a limit, in turn."""
        replies: dict[int, Reply] = {}
        for shard in self._paths:
            replies |= await self._ordered(request, {shard: _limited(order, limit)}, True)
            if replies[shard].good:
                limit -= json.loads(replies[shard].body)["changed"]
        return replies

    async def _batches(self, request: Request, given: Given) -> object:
        replies = await self._all(request)
        if "id" not in given:
            return merging.batches(_values(replies))
        if all(reply.status == HTTPStatus.NOT_FOUND for reply in replies.values()):
            raise Missing("no such batch among the last ones")
        known = {shard: reply for shard, reply in replies.items() if reply.status != HTTPStatus.NOT_FOUND}
        return {**merging.batch(_values(known)), **_left_out(known)}

    async def _pause(self, request: Request, _: Given) -> object:
        """One shard after the other: they share the file. One that is out of service reads it at a start."""
        replies: dict[int, Reply] = {}
        async with self._pausing:
            for shard, path in self._paths.items():
                replies[shard] = await ask(path, _passed_on(request, ACT_S))
        return merging.state(_values(replies, whole=True))

    async def _events(self, request: Request, _: Given) -> Answer:
        """What is live in all shards, as it comes; of a shard that ends they are missing from then on."""
        lines = LINES in request.accept
        question = replace(_passed_on(request), accept=request.accept)
        begun = await asyncio.gather(*(begin(path, question) for path in self._paths.values()))
        good = [reply.chunks for reply in begun if reply.good and reply.chunks is not None]
        others = [reply if reply.good else await read_whole(reply) for reply in begun]
        if not good:
            raise Unanswered(dict(zip(self._paths, others, strict=True)))
        chunks = merged(good, b"\n" if lines else b"\n\n")
        return Answer(chunks=chunks, content_type=LINES if lines else EVENTS)

    async def _add_message(self, request: Request, _: Given) -> Answer:
        """A shard that takes mail; they take turns. One that cannot be reached takes none of the body."""
        fields = {**request.fields, "content-type": request.content_type}
        fields.pop("x-mqcd-author", None)
        question = Question(target=request.path, by=request.by, method="POST", seconds=ACT_S, fields=fields)
        unread, shards = _Unread(request.chunks), self._listening
        replies: dict[int, Reply] = {}
        reply = Reply(status=0)
        self._next = (self._next + 1) % len(shards)
        for shard in (*shards[self._next :], *shards[: self._next]):
            begun = await begin(self._paths[shard], question, unread, request.length)
            replies[shard] = reply = await read_whole(begun)
            if reply.status or unread.begun:
                break
        if not reply.status:
            raise Unanswered(replies)
        return _answer(reply)

    async def _add_rule(self, request: Request, given: Given) -> object:
        if not take_dry_run(fields_in(request)):
            return await self._change_rules(request, given)
        replies = await self._all(request, ACT_S)
        return {**merging.batch(_values(replies)), **_left_out(replies)}

    async def _change_rules(self, request: Request, _: Given) -> object:
        """One shard changes the file of all; the others then take it up."""
        silent: dict[int, Reply] = {}
        for shard, path in self._paths.items():
            reply = await ask(path, _passed_on(request, ACT_S))
            if reply.good or reply.status == HTTPStatus.BAD_REQUEST:
                await self._ask_all(Question(target=RULES, by=request.by))
                _raise_bad({shard: reply})
                return json.loads(reply.body)
            silent[shard] = reply
        raise Unanswered(silent)


class _Unread(AsyncIterator[bytes]):
    """A body, and whether some of it has been read: then no other shard can get it."""

    def __init__(self, chunks: AsyncIterator[bytes] | None) -> None:
        self._chunks = chunks
        self.begun = False

    async def __anext__(self) -> bytes:
        self.begun = True
        if self._chunks is None:
            raise StopAsyncIteration
        return await anext(self._chunks)


def _limited(order: Order, limit: int) -> Order:
    return replace(order, selection=replace(order.selection, limit=limit))


def _rows(by_shard: Sequence[Sequence[Any]]) -> list[Any]:
    return [row for rows in by_shard for row in rows]


def _passed_on(request: Request, seconds: float = ASK_S) -> Question:
    """The same question to a shard; what it says to HEAD is merged as what it says to GET."""
    target = f"{request.path}?{request.query}" if request.query else request.path
    method = "POST" if request.method == "POST" else "GET"
    return Question(target=target, by=request.by, method=method, body=request.body, seconds=seconds)


def _answer(reply: Reply) -> Answer:
    """What a shard answers, as it is."""
    return Answer(
        status=HTTPStatus(reply.status),
        body=reply.body,
        content_type=reply.content_type,
        chunks=reply.chunks,
        length=reply.length,
    )


def _values(replies: Replies, *, whole: bool = False) -> list[Any]:
    """The values of the shards that answer. Raises DecodeError for what they call asked wrongly, Unanswered
    when none does, or not all of them do and the `whole` is asked for."""
    _raise_bad(replies)
    good = [reply for reply in replies.values() if reply.good]
    if not good or (whole and len(good) < len(replies)):
        raise Unanswered(replies)
    return [json.loads(reply.body) for reply in good]


def _raise_bad(replies: Replies) -> None:
    for reply in replies.values():
        if reply.status == HTTPStatus.BAD_REQUEST:
            raise DecodeError(reply.body.decode("utf-8", "replace").strip())


def _left_out(replies: Replies) -> dict[str, object]:
    """Which shards a list lacks."""
    silent = {shard: reply for shard, reply in replies.items() if not reply.good}
    return {"left_out": _lines(silent)} if silent else {}


def _lines(silent: Replies) -> list[str]:
    """A line for each shard."""
    return str(Unanswered(silent)).split("\n")


def _shards(replies: Replies) -> list[int]:
    """The shards that answer."""
    return [shard for shard, reply in replies.items() if reply.good]
