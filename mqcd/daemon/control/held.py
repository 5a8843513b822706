"""Held mail is asked for, in all shards: at a door (ETRN), and by the process of another shard on /v1/held.

A node of ETRN is started at most once in `AGAIN_MS`; a request before gets the answer of the last one. Each
process decides by its own settings who may ask for what.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path

from mqcd.core.errors import StoreUnavailable
from mqcd.core.ports import Clock, Connection
from mqcd.core.queueing import calls
from mqcd.core.queueing.holding import Holding
from mqcd.daemon.control.asking import Question, ask
from mqcd.daemon.control.retrying import LogEvent
from mqcd.deliver.service import Deliverer
from mqcd.ops.http.pages import JSON
from mqcd.ops.http.server import Answer, Request
from mqcd.submit.esmtp.calls import Collect

log = logging.getLogger(__name__)

HELD = "/v1/held"
AGAIN_MS = 10_000
_MOST_NODES = 10_000
"""Nodes whose last request is remembered."""


class HeldRequests:
    """One per server process."""

    def __init__(
        self,
        deliverer: Deliverer,
        holding: Callable[[], Holding],
        clock: Clock,
        log_event: LogEvent,
        others: Sequence[Path] = (),
    ) -> None:
        """`others`: the control sockets of the other shards."""
        self._deliverer = deliverer
        self._holding = holding
        self._clock = clock
        self._log_event = log_event
        self._others = others
        self._last: OrderedDict[tuple[str, str], tuple[int, bool]] = OrderedDict()

    async def start(self, node: str, user: str) -> bool:
        """See `submit.session.desk.HeldMail`."""
        now = self._clock.monotonic()
        last = self._last.get((node, user))
        if last is not None and now - last[0] < AGAIN_MS:
            return last[1]
        body = json.dumps({"node": node, "user": user}).encode()
        question = Question(target=HELD, by="", method="POST", body=body)
        asked = [ask(path, question) for path in self._others]
        domains = self._start_here(node, user)
        for path, reply in zip(self._others, await asyncio.gather(*asked), strict=True):
            if reply.good:
                domains += int(json.loads(reply.body)["domains"])
            else:
                log.warning("the held mail of %s is not started by %s: %r", node, path.name, reply.body)
        self._last[node, user] = now, domains > 0
        if len(self._last) > _MOST_NODES:
            self._last.popitem(last=False)
        self._log_event("etrn", node=node, user=user, domains=domains)
        return domains > 0

    def waiting(self, call: Collect) -> bool:
        """See `submit.session.desk.HeldMail`."""
        wanted = calls.collected(self._holding(), call.domains, call.user)
        return wanted is not None and self._deliverer.collecting.waiting(wanted)

    async def collect(
        self, call: Collect, connection: Connection, session: str, stops: Callable[[], bool]
    ) -> None:
        """See `submit.session.desk.HeldMail`."""
        wanted = calls.collected(self._holding(), call.domains, call.user)
        if wanted is not None:
            await self._deliverer.collecting.collect(connection, wanted, call.user, session, stops)

    def _start_here(self, node: str, user: str) -> int:
        """How many domains with mail were started in this process. Raises StoreUnavailable."""
        wanted = calls.started(self._holding(), node, user)
        return 0 if wanted is None else len(self._deliverer.start_held(wanted))

    async def page(self, request: Request) -> Answer:
        """Start the mail of this shard for another process of the server."""
        try:
            fields = json.loads(request.body)
            domains = self._start_here(str(fields["node"]), str(fields["user"]))
        except (ValueError, KeyError, TypeError) as error:
            return Answer(status=HTTPStatus.BAD_REQUEST, body=f"expected node and user: {error}\n".encode())
        except StoreUnavailable as error:
            return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body=f"{error}\n".encode())
        return Answer(body=json.dumps({"domains": domains}).encode() + b"\n", content_type=JSON)
