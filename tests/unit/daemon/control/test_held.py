"""Held mail that is asked for: once in a while, and what one process answers another."""

from __future__ import annotations

import json
from dataclasses import replace
from http import HTTPStatus

import pytest

from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.core.queueing.holding import HeldDomain, Holding, HoldMode
from mqcd.daemon.control.api.binding import answering
from mqcd.daemon.control.held import AGAIN_MS, HELD, HeldRequests
from mqcd.ops.http.server import Request
from mqcd.submit.esmtp.calls import Collect
from tests.fakes.dialer import Peer
from tests.fakes.store import MemoryStore
from tests.unit.deliver.kit import RELAYED, SCHEDULE, Kit

HOLDING = Holding(
    domains=(HeldDomain("e.example", HoldMode.ETRN), HeldDomain("a.example", HoldMode.ATRN, ("bob",)))
)
SETTINGS = replace(SCHEDULE, holding=HOLDING)


def made_of(kit: Kit) -> HeldRequests:
    return HeldRequests(kit.deliverer, lambda: HOLDING, kit.clock, lambda event, **_: None)


def kit() -> Kit:
    return Kit(
        RELAYED,
        {"192.0.2.1": "Connection refused"},
        schedule=SETTINGS,
        store=lambda clock, observer: MemoryStore(clock, observer, schedule=SETTINGS),
    )


async def test_a_node_is_started_once_in_a_while() -> None:
    async with kit() as made:
        held = made_of(made)
        await made.submit("x@e.example")
        await made.until(lambda: made.store.stats()[Area.HELD].recipients == 1)
        assert await held.start("e.example", "")
        await made.heard(Verb.DEFERRED, 2)
        made.dialer.hosts["192.0.2.1"] = Peer
        assert await held.start("e.example", "")
        await made.clock.run_for(AGAIN_MS)
        assert made.observer.count(Verb.DELIVERED) == 0
        assert await held.start("e.example", "")
        await made.heard(Verb.DELIVERED)
        await made.clock.run_for(AGAIN_MS)
        assert not await held.start("e.example", "")


async def test_only_a_users_own_mail_waits_for_them() -> None:
    async with kit() as made:
        held = made_of(made)
        assert not await held.waiting(Collect((), "bob"))
        await made.submit("x@a.example")
        assert await held.waiting(Collect((), "bob"))
        assert not await held.waiting(Collect((), "eve"))


@pytest.mark.parametrize(
    ("fields", "domains"),
    [
        ({"node": "a.example", "user": "bob"}, 0),
        ({"collect": [], "user": "bob"}, 1),
        ({"collect": ["a.example"], "user": "eve"}, 0),
    ],
)
async def test_another_process_gets_a_number(fields: dict[str, object], domains: int) -> None:
    async with kit() as made:
        await made.submit("x@a.example")
        request = Request(method="POST", path=HELD, body=json.dumps(fields).encode())
        answer = await answering(made_of(made).page)(request)
        assert json.loads(answer.body) == {"domains": domains}
        bad = await answering(made_of(made).page)(Request(method="POST", path=HELD, body=b"{}"))
        assert bad.status == HTTPStatus.BAD_REQUEST
