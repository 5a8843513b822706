"""A connection: what ends the attempt to open it, and how long its replies may take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mqcd.config.settings import ClientSettings
from mqcd.deliver.connection.link import Link
from mqcd.deliver.smtp.exchange import Options
from tests.fakes.clock import FakeClock, turns
from tests.fakes.dialer import FakeDialer, Peer
from tests.unit.deliver.kit import MINUTE, Kit

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


class SilentBehindTls(Peer):
    """It takes STARTTLS, and does not answer the EHLO that follows."""

    def _starttls(self, verb: str, text: str) -> None:
        super()._starttls(verb, text)
        self.replies = {"EHLO": None}


async def test_the_hello_behind_tls_has_the_patience_of_any() -> None:
    async with Kit(hosts={HOST: lambda: SilentBehindTls(extensions=("STARTTLS",))}) as kit:
        await kit.submit("to@example.com")
        await kit.clock.run_for(5 * MINUTE - 2000)
        assert not kit.dialer.peers[0].messages
        assert kit.dialer.peers[0].open
        await kit.clock.run_for(5000)
        assert "no reply within 300 s" in (await kit.deferred()).reply.text
