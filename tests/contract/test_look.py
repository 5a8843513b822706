"""Looking in: scans and figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqcd.core.errors import DecodeError
from mqcd.core.model import Area, AreaStats, Recipient
from mqcd.core.ports import QueueStore
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.marks import Marks
from tests.contract.harness import HOUR, MINUTE, Harness
from tests.contract.mail import BODY, Post, bounced, deferred, delivered, where

EMPTY = AreaStats()


async def test_an_empty_store_has_every_area(store: QueueStore) -> None:
    assert dict(store.stats()) == dict.fromkeys(Area, EMPTY)


async def test_figures_follow_each_recipient(store: QueueStore, post: Post) -> None:
    start = post.clock.now()
    size = len(BODY)
    await post.send("a@example.org", "b@example.org", "c@example.org")
    three = AreaStats(recipients=3, octets=3 * size, oldest=start)
    assert store.stats()[Area.INCOMING] == three
    first, second, third = await post.claim_all()
    assert store.stats()[Area.INCOMING] == three

    await post.settle(deferred(start + HOUR), first)
    await post.settle(bounced(), second)
    one = AreaStats(recipients=1, octets=size, oldest=start)
    assert dict(store.stats()) == {
        Area.INCOMING: one,
        Area.DEFERRED: one,
        Area.BOUNCES: one,
        Area.HELD: EMPTY,
        Area.REMOVED: EMPTY,
    }
    await post.settle(delivered(), third)
    assert store.stats()[Area.INCOMING] == EMPTY


async def test_the_oldest_is_the_oldest_of_those_that_are_left(
    store: QueueStore, post: Post, harness: Harness
) -> None:
    start = post.clock.now()
    for n in range(3):
        await post.send(f"r{n}@example.org")
        harness.clock.advance(MINUTE)
    claimed = sorted(await post.claim_all(), key=lambda each: each.key)
    await post.settle(delivered(), claimed[1])
    assert store.stats()[Area.INCOMING].oldest == start
    await post.settle(delivered(), claimed[0])
    assert store.stats()[Area.INCOMING].oldest == start + 2 * MINUTE


async def test_parked_mail_counts_where_it_waits(store: QueueStore, post: Post) -> None:
    await post.send("a@example.org")
    before = store.stats()[Area.INCOMING]
    await store.park(await post.claim_all(), 0)
    assert store.stats()[Area.INCOMING] == before
    await store.park(await post.claim_all(), post.clock.now() + HOUR)
    assert (store.stats()[Area.INCOMING], store.stats()[Area.DEFERRED]) == (EMPTY, before)
    assert {each.area for each in (await post.scan()).values()} == {Area.DEFERRED}


async def test_a_scan_gives_everything_in_flight_or_not(post: Post) -> None:
    sent = [each for n in range(3) for each in await post.send(f"a{n}@x.example", f"b{n}@y.example")]
    await post.store.claim(2, post.clock.now())
    assert await post.scan() == {each.key: each for each in sent}


SELECTIONS = [
    (Selection(area=Area.DEFERRED), {"two@y.example"}),
    (Selection(area=Area.BOUNCES), {"three@x.example"}),
    (Selection(area=Area.HELD), set()),
    (Selection(sender=""), {"four@x.example"}),
    (Selection(sender="SENDER@example.com", domain="x.example"), {"one@x.example", "three@x.example"}),
    (Selection(recipient="Two@Y.example"), {"two@y.example"}),
    (Selection(domain="Y.EXAMPLE"), {"two@y.example"}),
    (where("domain = y.example or sender = <>"), {"two@y.example", "four@x.example"}),
    (where("area = deferred and attempts = 1 and due > 30m"), {"two@y.example"}),
    (where("not area in (incoming, deferred)"), {"three@x.example"}),
    (where("age < 1s and class != mailbox and not sender = <>"), {"one@x.example", "three@x.example"}),
]


async def test_a_scan_selects(post: Post) -> None:
    await post.send("one@x.example", "two@y.example", "three@x.example")
    claimed = {each.address: each for each in await post.claim_all()}
    await post.settle(deferred(post.clock.now() + HOUR), claimed["two@y.example"])
    await post.settle(bounced(), claimed["three@x.example"])
    await post.send("four@x.example", sender="")
    for selection, expected in SELECTIONS:
        assert {each.address for each in (await post.scan(selection)).values()} == expected, selection


async def test_a_scan_selects_by_labels(post: Post) -> None:
    labels = Marks(message_id="<a@b.example>", tag="spring sale").labels("acme")
    [one] = await post.store.enqueue(post.submission("a@x.example", labels=labels))
    await post.send("b@x.example")
    for text in ('tag = "spring sale"', "tenant = acme", "message-id = a@b.example"):
        assert await post.scan(where(text)) == {one.key: one}


async def test_a_scan_selects_by_message_and_time(post: Post, harness: Harness) -> None:
    first = await post.send("a@example.org", "b@example.org")
    harness.clock.advance(MINUTE)
    [second] = await post.send("c@example.org")
    assert set(await post.scan(Selection(spid=first[0].spid))) == {each.key for each in first}
    before = Selection(received_before=second.envelope.received)
    assert set(await post.scan(before)) == {each.key for each in first}


async def test_a_scan_stops_at_its_limit(post: Post) -> None:
    await post.send(*[f"r{n}@example.org" for n in range(9)])
    assert len(await post.scan(Selection(limit=4))) == 4
    assert len(await post.scan(Selection(limit=0))) == 0


async def test_a_scan_shows_one_moment(store: QueueStore, post: Post) -> None:
    sent = await post.send(*[f"r{n}@example.org" for n in range(50)])
    stream = store.scan(Selection())
    seen = {(await anext(stream)).key}
    await post.settle(delivered(), *await post.claim_all())
    await post.send("late@example.org")
    seen |= {each.key async for each in stream}
    assert seen == {each.key for each in sent}


async def listed(store: QueueStore, selection: Selection, by_age: bool) -> list[tuple[int, int]]:
    """All that parts of this size give, one after the other."""
    found: list[tuple[int, int]] = []
    after: str | None = ""
    while after is not None:
        part = await store.browse(selection, after, by_age)
        assert selection.limit is None or len(part.recipients) <= selection.limit
        found += [each.key for each in part.recipients]
        after = part.after
    return found


@pytest.mark.parametrize("by_age", [False, True])
async def test_a_list_comes_in_parts(post: Post, by_age: bool) -> None:
    sent = [each for n in range(4) for each in await post.send(f"a{n}@x.example", f"b{n}@y.example")]
    await post.claim_all()
    for limit in (1, 2, 3, None):
        parts = await listed(post.store, replace(where("domain = x.example"), limit=limit), by_age)
        assert sorted(parts) == sorted(each.key for each in sent if each.domain == "x.example"), limit
        assert len(await listed(post.store, Selection(limit=limit), by_age)) == 8, limit


async def test_a_list_by_age_begins_with_the_oldest(post: Post, harness: Harness) -> None:
    sent = list[Recipient]()
    for n in range(5):
        sent += await post.send(f"r{n}@x.example")
        harness.clock.advance(MINUTE)
    claimed = await post.claim_all()
    await post.settle(deferred(post.clock.now() + HOUR), claimed[0], claimed[3])
    assert await listed(post.store, Selection(limit=2), True) == [each.key for each in sent]


async def test_what_moves_comes_once_in_a_list_by_age(post: Post, harness: Harness) -> None:
    for n in range(4):
        await post.send(f"r{n}@x.example")
        harness.clock.advance(MINUTE)
    part = await post.store.browse(Selection(limit=2), "", by_age=True)
    claimed = await post.claim_all()
    await post.settle(deferred(post.clock.now() + HOUR), *claimed)
    assert part.after is not None
    rest = await post.store.browse(Selection(limit=9), part.after, by_age=True)
    assert len({each.key for each in (*part.recipients, *rest.recipients)}) == 4
    assert rest.after is None


async def test_a_list_begins_at_no_other_place(store: QueueStore) -> None:
    for after in ("x", "c:a", "j:x:1", "age:1:2:3", "c::-1", "j:1:99999999999999999999"):
        for by_age in (False, True):
            with pytest.raises(DecodeError):
                await store.browse(Selection(), after, by_age)


async def test_a_selection_is_measured(post: Post, harness: Harness) -> None:
    start = post.clock.now()
    await post.send("a@x.example", "b@y.example")
    harness.clock.advance(MINUTE)
    await post.send("c@x.example")
    size = len(BODY)
    found = await post.store.measure(where("domain = x.example"))
    assert found == AreaStats(recipients=2, octets=2 * size, oldest=start)
    assert await post.store.measure(Selection()) == AreaStats(recipients=3, octets=3 * size, oldest=start)
    assert await post.store.measure(Selection(spid=1)) == EMPTY
    assert set(await post.store.lane_keys(Selection())) == {"x.example", "y.example"}
    assert set(await post.store.lane_keys(where("recipient ~ a@*"))) == {"x.example"}
