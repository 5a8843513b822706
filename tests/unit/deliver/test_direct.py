"""New mail that goes straight to a free connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from mqcd.config.settings import DeliverSettings, Rate, SenderSettings
from mqcd.core.events import Verb
from mqcd.core.model import Recipient
from mqcd.core.ports import Reservation
from mqcd.core.smtp.reply import Reply
from tests.fakes.dialer import Peer
from tests.unit.deliver.kit import CONTENT, RELAYED, Kit

RATE = Rate(count=10, per=1000)


class Door:
    """Stands between store and deliverer: keeps what is reserved until the test lets it go on."""

    def __init__(self, kit: Kit) -> None:
        find = kit.store._find
        assert find is not None
        self._find = find
        self.reserved: list[Reservation] = []
        self.hold = False
        kit.store.hand_over(self)

    def __call__(self, recipients: Sequence[Recipient]) -> Reservation | None:
        found = self._find(recipients)
        if found is None:
            return None
        self.reserved.append(found)
        return _Held(found.destination) if self.hold else found


class _Held:
    begins = True

    def __init__(self, destination: str) -> None:
        self.destination = destination

    def use(self, content: bytes | None) -> None:
        """Later, by the test."""

    def release(self) -> None:
        """Later, by the test."""


async def warmed(kit: Kit) -> Door:
    """One message has gone through, so a connection is idle."""
    await kit.submit("first@example.com")
    await kit.heard(Verb.DELIVERED)
    await kit.until(lambda: kit.deliverer.lanes()[0].idle == 1)
    return Door(kit)


async def test_new_mail_takes_an_idle_connection() -> None:
    async with Kit() as kit:
        door = await warmed(kit)
        sent = await kit.submit("a@example.com", "b@example.com")
        await kit.heard(Verb.DELIVERED, 3)
        assert len(door.reserved) == len(kit.dialer.dialled) == 1
        for each in sent:
            verbs = [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.DELIVERED]
            assert kit.observer.verbs(each.key) == verbs
        [(_, recipients, content)] = kit.dialer.messages[1:]
        assert recipients == ("a@example.com", "b@example.com")
        assert content == CONTENT
        await kit.deliverer.drained()
        assert kit.deliverer.active == 0


@pytest.mark.parametrize(
    ("settings", "recipients"),
    [
        (RELAYED, ("a@example.com", "b@example.net")),
        (replace(RELAYED, maxrecips=1), ("a@example.com", "b@example.com")),
        (replace(RELAYED, maxidletime=0), ("a@example.com",)),
        (
            replace(RELAYED, senders=(SenderSettings(match="example.org", rate=RATE),)),
            ("a@example.com",),
        ),
    ],
    ids=["two domains", "more than maxrecips", "no idle connections", "a rate of the sender"],
)
async def test_other_mail_takes_the_ordinary_way(
    settings: DeliverSettings, recipients: tuple[str, ...]
) -> None:
    async with Kit(settings) as kit:
        await kit.submit("first@example.com")
        await kit.heard(Verb.DELIVERED)
        await kit.deliverer.drained()
        door = Door(kit)
        await kit.submit(*recipients)
        await kit.heard(Verb.DELIVERED, 1 + len(recipients))
        assert door.reserved == []


async def test_a_reserved_connection_takes_nothing_else() -> None:
    async with Kit() as kit:
        door = await warmed(kit)
        door.hold = True
        await kit.submit("held@example.com")
        door.hold = False
        await kit.submit("other@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        assert len(kit.dialer.dialled) == 2
        door.reserved[0].use(CONTENT)
        await kit.heard(Verb.DELIVERED, 3)
        assert len(kit.dialer.dialled) == 2


async def test_new_mail_waits_in_its_lane_while_connections_are_at_work() -> None:
    async with Kit() as kit:
        door = await warmed(kit)
        kit.dialer.peers[0].replies = {"MAIL": None}
        await kit.submit("first@example.com")
        [second] = await kit.submit("second@example.com")
        assert [each.begins for each in door.reserved] == [True, False]
        await kit.heard(Verb.DELIVERED, 2)
        assert kit.observer.verbs(second.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.DELIVERED]
        assert kit.dialer.messages[-1][1:] == (("second@example.com",), CONTENT)
        await kit.submit("third@example.com")
        await kit.heard(Verb.DELIVERED, 3)


async def test_mail_that_waited_and_was_refused_leaves_its_place() -> None:
    async with Kit() as kit:
        await warmed(kit)
        find = kit.store._find
        assert find is not None
        kit.dialer.peers[0].replies = {"MAIL": None}
        [recipient] = await kit.submit("first@example.com")
        waits = find([replace(recipient, qid=2)])
        assert waits is not None
        assert (waits.begins, kit.deliverer.active) == (False, 2)
        waits.release()
        waits.release()
        assert kit.deliverer.active == 1


async def test_a_released_connection_is_idle_again_and_expires() -> None:
    async with Kit() as kit:
        await warmed(kit)
        find = kit.store._find
        assert find is not None
        [recipient] = await kit.submit("second@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        await kit.until(lambda: kit.deliverer.lanes()[0].idle == 1)
        reserved = find([recipient])
        assert reserved is not None
        assert (kit.deliverer.active, kit.deliverer.lanes()[0].idle) == (1, 0)
        await kit.clock.run_for(60_000)
        reserved.release()
        reserved.release()
        assert (kit.deliverer.active, kit.deliverer.lanes()[0].idle) == (0, 1)
        await kit.submit("third@example.com")
        await kit.heard(Verb.DELIVERED, 3)
        assert len(kit.dialer.dialled) == 1
        await kit.clock.run_for(60_000)
        assert kit.deliverer.lanes()[0].connections == 0


async def test_a_reserved_connection_that_ends_leaves_the_job_to_another() -> None:
    async with Kit() as kit:
        door = await warmed(kit)
        door.hold = True
        [recipient] = await kit.submit("held@example.com")
        kit.dialer.peers[0]._connection.hang_up()
        door.reserved[0].use(CONTENT)
        await kit.heard(Verb.DELIVERED, 2)
        assert len(kit.dialer.dialled) == 2
        assert kit.observer.verbs(recipient.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.DELIVERED]


async def test_a_stop_before_it_is_used_parks_the_mail() -> None:
    async with Kit() as kit:
        door = await warmed(kit)
        door.hold = True
        [recipient] = await kit.submit("held@example.com")
        stop = asyncio.ensure_future(kit.deliverer.stop(1000))
        while not stop.done():
            await kit.clock.run_for(1000)
        await stop
        door.reserved[0].use(CONTENT)
        await kit.until(lambda: not kit.store.in_flight(recipient))
        assert kit.observer.verbs(recipient.key) == [Verb.ACCEPTED, Verb.ATTEMPTED]
        assert len(kit.dialer.messages) == 1


async def test_mail_durable_during_a_stop_does_not_delay_it() -> None:
    async with Kit() as kit:
        door = await warmed(kit)
        door.hold = True
        await kit.submit("held@example.com")
        stop = asyncio.ensure_future(kit.deliverer.stop(60_000))
        await kit.clock.run_for(1)
        door.reserved[0].use(CONTENT)
        await kit.clock.run_for(1000)
        assert stop.done()
        await kit.clock.run_for(60_000)
        await stop


async def test_mail_put_back_during_a_stop_is_parked() -> None:
    async with Kit() as kit:
        await warmed(kit)
        peer = kit.dialer.peers[0]
        peer.replies = {"MAIL": None}
        [recipient] = await kit.submit("to@example.com")
        await kit.clock.run_for(10)
        stop = asyncio.ensure_future(kit.deliverer.stop(60_000))
        await kit.clock.run_for(10)
        peer._connection.hang_up()
        await kit.clock.run_for(60_000)
        await stop
        assert not kit.store.in_flight(recipient)


async def test_a_released_connection_that_nothing_uses_expires() -> None:
    async with Kit() as kit:
        door = await warmed(kit)
        door.hold = True
        await kit.submit("held@example.com")
        await kit.clock.run_for(60_000)
        door.reserved[0].release()
        assert kit.deliverer.lanes()[0].idle == 1
        await kit.clock.run_for(60_000)
        assert kit.deliverer.lanes()[0].connections == 0


async def test_an_error_of_our_own_leaves_mail_to_the_ordinary_way(caplog: pytest.LogCaptureFixture) -> None:
    def fails(address: str) -> Reply | None:
        raise RuntimeError("by the test")

    async with Kit() as kit:
        door = await warmed(kit)
        kit.deliverer.suppress(fails)
        [recipient] = await kit.submit("to@example.com")
        await kit.heard(Verb.DEFERRED)
        assert door.reserved == []
        assert kit.observer.verbs(recipient.key)[0] is Verb.ACCEPTED
        assert "internal error" in caplog.text


async def test_mail_for_a_suspended_destination_reserves_nothing() -> None:
    async with Kit() as kit:
        door = await warmed(kit)
        kit.dialer.hosts["192.0.2.1"] = lambda: Peer(replies={"MAIL": ""})
        await kit.clock.run_for(60_000)
        for number in range(5):
            await kit.submit(f"to{number}@example.com")
            await kit.clock.run_for(1000)
        assert kit.deliverer.suspended == 1
        assert door.reserved == []
