"""Delivery from a queue whose journal fails: what could not be recorded is not tried, no verdict is lost."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqcd.core.events import Verb
from mqcd.deliver.service import Deliverer
from mqcd.queue.store import ClusterStore
from tests.contract.mail import Post
from tests.fakes.clock import FakeClock
from tests.fakes.dialer import FakeDialer, Peer
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver
from tests.fakes.resolver import FakeResolver
from tests.fakes.workers import InlineWorkers
from tests.unit.deliver.kit import RELAYED, SCHEDULE
from tests.unit.queue.support import options

pytestmark = pytest.mark.crash

JOURNAL = "*/journal/*"
SECOND = 1000


class Site:
    """A queue on disk, delivery from it, and one next hop; nothing runs beside the loop."""

    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.disk = FaultyDisk()
        self.observer = RecordingObserver()
        self.silent_at_dot = False
        self.dialer = FakeDialer({"192.0.2.1": self._peer})
        self.store = ClusterStore(
            options(root), self.clock, self.observer, self.disk, InlineWorkers(self.disk)
        )
        self.post = Post(self.store, self.clock)
        self.deliverer = Deliverer(
            RELAYED,
            SCHEDULE,
            store=self.store,
            clock=self.clock,
            resolver=FakeResolver(),
            dialer=self.dialer,
            observer=self.observer,
        )

    def _peer(self) -> Peer:
        return Peer(replies={".": None} if self.silent_at_dot else {})

    def fall_ill(self) -> None:
        """From now on no group becomes durable."""
        self.disk.fail("datasync", JOURNAL, times=None, code=errno.ENOSPC)

    @property
    def dots(self) -> int:
        """Messages that the next hop has whole."""
        return len(self.dialer.messages)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path / "q")
    await made.store.open()
    await made.store.recovered()
    yield made
    made.disk.mend()
    await made.clock.run_for(20 * SECOND)
    await made.deliverer.stop(0)
    await made.store.close()


async def test_no_attempt_passes_begin_while_the_disk_fails(site: Site) -> None:
    for number in range(3):
        await site.post.send(f"to{number}@example.com")
    site.fall_ill()
    await site.deliverer.start()
    await site.clock.run_for(60 * SECOND)
    assert site.dots == 0
    assert site.deliverer.paused
    assert not any(peer.open for peer in site.dialer.peers), "nobody is held while nothing can be begun"
    dialled = len(site.dialer.peers)
    await site.clock.run_for(60 * SECOND)
    assert len(site.dialer.peers) == dialled, "nor is anybody dialled for nothing"
    site.disk.mend()
    # What was kept goes to the store one after another: that takes more turns than time.
    await site.clock.run_for(20 * SECOND, turns=50)
    assert site.observer.count(Verb.DELIVERED) == site.dots == 3
    assert not site.deliverer.paused


async def test_a_verdict_waits_for_the_journal_a_connection_not(site: Site) -> None:
    site.silent_at_dot = True
    [recipient] = await site.post.send("to@example.com")
    await site.deliverer.start()
    await site.clock.run_for(SECOND)
    [peer] = site.dialer.peers
    assert peer.log[-1] == "DATA"
    site.fall_ill()
    peer._connection.say(b"250 2.0.0 taken\r\n")
    peer._silent = False
    await site.clock.run_for(RELAYED.maxidletime + 60 * SECOND)
    assert site.observer.verbs(recipient.key)[-1] is Verb.ATTEMPTED
    assert site.store.in_flight(recipient)
    assert site.store.stalled()
    assert peer.log[-1] == "QUIT"
    site.disk.mend()
    await site.clock.run_for(20 * SECOND)
    assert site.observer.verbs(recipient.key)[-1] is Verb.DELIVERED
    assert site.observer.count(Verb.ATTEMPTED) == 1
    assert not any(area.recipients for area in site.store.stats().values())
