"""A connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mqcd.config.settings import ClientSettings
from mqcd.deliver.connection.link import Link
from mqcd.deliver.smtp.exchange import Options
from tests.fakes.clock import FakeClock, turns
from tests.fakes.dialer import FakeDialer

HOST = "192.0.2.1"


@pytest.mark.parametrize("timeout_first", [True, False])
async def test_a_cancellation_that_meets_the_timeout_stays_one(timeout_first: bool) -> None:
    link = Link(ClientSettings(), FakeClock(), Options(hello="mx.example.org"), "mx", HOST)
    opening = asyncio.create_task(link.open(FakeDialer({HOST: None}), 25))
    await turns()
    both: list[Callable[[], object]] = [link.expire, opening.cancel]
    for each in both if timeout_first else reversed(both):
        each()
    with pytest.raises(asyncio.CancelledError):
        await opening
