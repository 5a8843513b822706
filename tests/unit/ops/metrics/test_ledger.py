"""The two sets of books: they agree through every life that a recipient can have, and show what is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mqcd.core.model import Area, AreaStats, Discarded, Reported
from mqcd.ops.metrics.ledger import Ledger
from mqcd.ops.metrics.meters import Meters
from tests.contract.mail import Post, bounced, deferred, delivered, expired
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore


class Books:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.meters = Meters()
        self.store = MemoryStore(self.clock, self.meters)
        self.post = Post(self.store, self.clock)
        self.lost: dict[Area, int] = {}
        self.ledger = Ledger(self.meters, self)

    def stats(self) -> Mapping[Area, AreaStats]:
        """The store's own, less what the test has it lose."""
        return {
            area: replace(held, recipients=held.recipients - self.lost.get(area, 0))
            for area, held in self.store.stats().items()
        }


@pytest.fixture
async def books() -> Books:
    books = Books()
    await books.store.open()
    # What was there before the books were opened is nobody's loss.
    await books.post.send("before@example.org", "too@example.org")
    books.meters.accepted_recipients = 0
    books.ledger.open(quarantined=3)
    return books


async def test_before_they_are_opened_there_is_nothing_to_say() -> None:
    books = Books()
    assert books.ledger.imbalance(0) is None


async def test_every_way_to_live_and_to_end_balances(books: Books) -> None:
    ledger, post = books.ledger, books.post
    await post.send(*(f"{number}@example.org" for number in range(6)))
    await post.send("reported@example.org", sender="")
    assert ledger.imbalance(3) == 0
    mail = {each.address.partition("@")[0]: each for each in await post.claim_all()}
    await post.settle(delivered(), mail["0"], mail["before"])
    await post.settle(deferred(books.clock.now() + 1000), mail["1"])
    await post.settle(bounced(), mail["2"], mail["3"])
    await post.settle(expired(), mail["4"])
    await post.settle(bounced(), mail["reported"])
    assert books.meters.silent_ends == 1
    assert ledger.imbalance(3) == 0
    two, three, four = sorted(await post.claim_bounces(), key=lambda each: each.address)
    await post.settle(Reported(report_spid=9), two)
    await post.settle(Discarded(reason="notify"), three, four)
    assert ledger.imbalance(3) == 0
    assert sum(held.recipients for held in books.stats().values()) == 3


@pytest.mark.parametrize("area", [Area.INCOMING, Area.HELD])
async def test_lost_and_double_recipients_are_found(books: Books, area: Area) -> None:
    books.lost[area] = 2
    assert books.ledger.imbalance(3) == 2
    books.lost[area] = -1
    assert books.ledger.imbalance(3) == -1


async def test_a_line_that_is_quarantined_is_accounted_for(books: Books) -> None:
    books.lost[Area.INCOMING] = 1
    assert books.ledger.imbalance(4) == 0
