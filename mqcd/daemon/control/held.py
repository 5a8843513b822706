"""Held mail is asked for, in all shards: at a door (ETRN), and by the process of another shard on /v1/held.

A node of ETRN is started at most once in `AGAIN_MS`; a request before gets the answer of the last one. Each
process decides by its own settings who may ask for what.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.ports import Clock, Connection
from mqcd.core.queueing import calls
from mqcd.core.queueing.holding import Holding
from mqcd.daemon.control.asking import Question, ask
from mqcd.deliver.service import Deliverer
from mqcd.net.control.lending import joined, lend, say_good
from mqcd.net.shared.balance import Balance
from mqcd.ops.http.server import Request
from mqcd.ops.log.log import LogEvent
from mqcd.submit.esmtp.calls import Collect

log = logging.getLogger(__name__)

HELD = "/v1/held"
AGAIN_MS = 10_000
_MOST_NODES = 10_000
"""Nodes whose last request is remembered."""
_GREETING = b"220 ready\r\n"
"""What the user's server has said before: each shard's client begins with it."""


class HeldRequests:
    """One per server process."""

    def __init__(
        self,
        deliverer: Deliverer,
        holding: Callable[[], Holding],
        clock: Clock,
        log_event: LogEvent,
        others: Mapping[int, Path] | None = None,
        balance: Balance | None = None,
    ) -> None:
        """`others`: by shard, the control sockets of the other ones; `balance` with them."""
        self._deliverer = deliverer
        self._holding = holding
        self._clock = clock
        self._log_event = log_event
        self._others = others or {}
        self._balance = balance
        self._borrowing: set[asyncio.Task[None]] = set()
        self._last: OrderedDict[tuple[str, str], tuple[int, bool]] = OrderedDict()

    async def start(self, node: str, user: str) -> bool:
        """See `submit.session.desk.HeldMail`."""
        now = self._clock.monotonic()
        last = self._last.get((node, user))
        if last is not None and now - last[0] < AGAIN_MS:
            return last[1]
        body = json.dumps({"node": node, "user": user}).encode()
        asked = asyncio.ensure_future(self._ask_others(body))
        domains = self._start_here(node, user) + sum((await asked).values())
        self._last[node, user] = now, domains > 0
        if len(self._last) > _MOST_NODES:
            self._last.popitem(last=False)
        self._log_event("etrn", node=node, user=user, domains=domains)
        return domains > 0

    async def waiting(self, call: Collect) -> bool:
        """See `submit.session.desk.HeldMail`."""
        return self._waits_here(call) or bool(await self._elsewhere(call))

    def _waits_here(self, call: Collect) -> bool:
        wanted = calls.collected(self._holding(), call.domains, call.user)
        return wanted is not None and self._deliverer.collecting.waiting(wanted)

    async def _elsewhere(self, call: Collect) -> list[int]:
        """The other shards that have mail for it."""
        found = await self._ask_others(json.dumps({"collect": call.domains, "user": call.user}).encode())
        return [shard for shard, domains in found.items() if domains]

    async def _ask_others(self, body: bytes) -> Mapping[int, int]:
        """By other shard that answers: the number of domains with mail that is asked for."""
        question = Question(target=HELD, by="", method="POST", body=body)
        replies = await asyncio.gather(*[ask(path, question) for path in self._others.values()])
        found: dict[int, int] = {}
        for shard, reply in zip(self._others, replies, strict=True):
            if reply.good:
                found[shard] = int(json.loads(reply.body)["domains"])
            else:
                log.warning("shard %d does not answer for its held mail: %r", shard, reply.body)
        return found

    async def collect(
        self, call: Collect, connection: Connection, session: str, stops: Callable[[], bool]
    ) -> None:
        """See `submit.session.desk.HeldMail`. The shards have the connection one after the other; the last
        one ends it."""
        terms = {**asdict(call), "session": session, "address": connection.remote_addr}
        rest = await self._elsewhere(call)
        good = await self._send(terms, connection, stops, ends=not rest)
        while rest and good and not stops():
            shard = rest.pop(0)
            lent = json.dumps({**terms, "ends": not rest}).encode()

            def pass_on(*ends: socket.socket, shard: int = shard, lent: bytes = lent) -> bool:
                return self._balance is not None and self._balance.lend(shard, lent, ends)

            good = await lend(connection, _GREETING, pass_on)

    async def _send(
        self, terms: Mapping[str, Any], connection: Connection, stops: Callable[[], bool], *, ends: bool
    ) -> bool:
        """Send this shard's mail; whether the connection may be used again."""
        user = str(terms["user"])
        wanted = calls.collected(self._holding(), tuple(terms["domains"]), user)
        if wanted is None:
            return True
        session, address = str(terms["session"]), str(terms["address"])
        return await self._deliverer.collecting.collect(
            connection, wanted, user, session, stops, address=address, ends=ends
        )

    def borrow(self, terms: bytes, ends: Sequence[socket.socket]) -> None:
        """Another process lends a connection: see `collect`."""
        task = asyncio.get_running_loop().create_task(self._borrow(json.loads(terms), *ends))
        self._borrowing.add(task)
        task.add_done_callback(self._borrowing.discard)

    async def _borrow(self, terms: Mapping[str, Any], end: socket.socket, said: socket.socket) -> None:
        with end, said:
            connection = await joined(end)
            try:
                if await self._send(terms, connection, lambda: False, ends=bool(terms["ends"])):
                    say_good(said)
            except StoreUnavailable as error:
                log.warning("held mail stays: %s", error, extra={"session": terms["session"]})
            finally:
                connection.close()

    def _start_here(self, node: str, user: str) -> int:
        """How many domains with mail were started in this process. Raises StoreUnavailable."""
        wanted = calls.started(self._holding(), node, user)
        return 0 if wanted is None else len(self._deliverer.start_held(wanted))

    async def page(self, request: Request) -> object:
        """Start the mail of this shard for another process of the server, or say whether some is to be
        collected. Raises DecodeError, StoreUnavailable."""
        try:
            fields = json.loads(request.body)
            user = str(fields["user"])
            if "collect" in fields:
                domains = int(self._waits_here(Collect(tuple(fields["collect"]), user)))
            else:
                domains = self._start_here(str(fields["node"]), user)
        except (ValueError, KeyError, TypeError) as error:
            raise DecodeError(f"expected node and user: {error}") from error
        return {"domains": domains}
