"""Tenants in lanes, zones and the active set: who goes next, and who may come in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.model import Envelope, Recipient
from mqcd.deliver.lanes.lane import Bounds
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.lanes.tenants import Places, Shares, TurnOrder, few_of
from mqcd.deliver.routing.policy import Hop
from tests.unit.deliver.lanes.test_scheduling import REFUSED, to


def mail(tenant: str, count: int, first: int = 1) -> list[Recipient]:
    return [
        Recipient(
            envelope=Envelope(spid=2 * number, sender="", received=0, listener=tenant),
            size=1,
            qid=1,
            address="to@x.example",
        )
        for number in range(first, first + count)
    ]


def places(held: dict[str, int], most: int, *, full: bool = True) -> tuple[Shares, Places]:
    shares = Shares()
    for tenant, count in held.items():
        shares.enter(mail(tenant, count))
    active = sum(held.values())
    return shares, Places(
        shares, active, most, full=full, takes_few=lambda domain, most: domain != "dead.example"
    )


def test_tenants_alternate_whatever_each_has_waiting() -> None:
    order = TurnOrder()
    bulk = [(order.next("a"), number) for number in range(100)]
    for turn, _ in bulk[:10]:
        order.served(turn)
    single = (order.next("b"), 100)
    assert sorted([*bulk[10:], single]).index(single) == 1


def test_one_tenant_goes_by_arrival() -> None:
    order = TurnOrder()
    assert [order.next("a") for _ in range(5)] == [1, 2, 3, 4, 5]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=2000))
def test_turns_forget_tenants_without_changing_theirs(tenants: list[int]) -> None:
    short, long = TurnOrder(), TurnOrder()
    long._kept = 1 << 30
    for number, tenant in enumerate(tenants):
        assert short.next(str(tenant)) == long.next(str(tenant))
        if number % 3 == 0:
            short.served(short.now + 1)
            long.served(long.now + 1)


def test_one_tenant_fills_the_active_set_alone() -> None:
    _, made = places({"a": 79}, 80)
    assert made.take("a")
    assert not made.take("a")
    assert not made.refused


def test_a_full_active_set_has_places_for_the_next_tenant() -> None:
    _, made = places({"a": 80}, 80)
    assert made.extra == 10
    assert not made.take("a")
    assert [made.take("b") for _ in range(10)] == [True] * 9 + [False]
    assert made.refused
    assert made.take("c")


def test_an_active_set_with_room_needs_no_further_places() -> None:
    assert places({"a": 40}, 80, full=False)[1].extra == 0


@pytest.mark.parametrize(("tenant", "passes"), [("a", False), ("b", True), ("", False), ("c", False)])
def test_who_holds_next_to_nothing_passes(tenant: str, passes: bool) -> None:
    _, made = places({"a": 700, "c": 60}, 800)
    assert made.passes(tenant, "x.example") is passes
    assert not made.passes(tenant, "dead.example")


def test_what_leaves_is_held_no_more() -> None:
    shares, _ = places({"a": 3}, 80)
    assert not shares.several
    shares.leave(mail("a", 3))
    assert not shares.held
    shares.enter(mail("b", 1))
    assert shares.several


def table() -> LaneTable:
    return LaneTable(Bounds(queuecache=1000, maxconnections=100, maxrecips=50))


def add(lanes: LaneTable, hop: Hop, recipients: list[Recipient], now: int = 0) -> int:
    """How many come in."""
    lanes.entering.enter(recipients)
    return sum(lanes.entering.add(each, "x.example", hop, now) is None for each in recipients)


def test_a_lane_serves_tenants_in_turn() -> None:
    lanes, hop = table(), to("a", connections=1)
    add(lanes, hop, mail("a", 100))
    [start] = lanes.dispatch(0)
    add(lanes, hop, mail("b", 2, first=500))
    going = [lanes.next_job(start.lane, 0) for _ in range(5)]
    assert [job.recipients[0].envelope.tenant for job in going if job] == ["a", "b", "a", "b", "a"]


def test_a_named_zone_serves_tenants_in_turn() -> None:
    lanes = table()
    hops = [to(name, connections=1) for name in "ab"]
    one, two = (replace(each, policy=replace(each.policy, zone="z")) for each in hops)
    add(lanes, one, mail("a", 50))
    [first] = lanes.dispatch(0)
    add(lanes, two, mail("a", 50, first=100))
    add(lanes, two, mail("b", 1, first=500))
    [start] = lanes.dispatch(0)
    assert start.job.recipients[0].envelope.tenant == "b"
    assert first.lane is not start.lane


def test_a_new_lane_at_its_share_admits_another_tenant() -> None:
    lanes, hop = table(), to("a", connections=1)
    assert add(lanes, hop, mail("a", 400)) == 250
    assert add(lanes, hop, mail("b", 2, first=500)) == 2


def test_many_tenants_with_little_do_not_fill_a_lane() -> None:
    lanes, hop = table(), to("a", connections=1)
    add(lanes, hop, mail("a", 400))
    entered = sum(add(lanes, hop, mail(f"t{number}", 1, first=500 + number)) for number in range(100))
    assert entered == few_of(1000) == 31
    assert not lanes.entering.places(lanes.passing.skip(0)).passes("another", "x.example")
    lane = next(lanes.lanes())
    while lane.queue.few:
        lane.queue.take()
    assert lanes.entering.places(lanes.passing.skip(0)).passes("another", "x.example")
    assert add(lanes, hop, mail("another", 1, first=900)) == 1


def test_what_a_rule_suspends_is_passed_over_for_all() -> None:
    lanes, hop = table(), to("a", connections=1)
    add(lanes, hop, mail("a", 400))
    assert lanes.entering.places(lanes.passing.skip(0)).passes("other", "x.example")
    assert not lanes.entering.places(lanes.passing.skip(0, 0, {"x.example": 9})).passes("other", "x.example")


def test_turns_of_mail_that_left_its_lane_are_given_back() -> None:
    lanes, hop = table(), to("a", connections=1)
    add(lanes, hop, mail("a", 100))
    lanes.entering.leave(lanes.empty())
    add(lanes, hop, [*mail("a", 2, first=200), *mail("b", 2, first=500)])
    [start] = lanes.dispatch(0)
    going = [start.job, *(lanes.next_job(start.lane, 0) for _ in range(3))]
    assert [job.recipients[0].envelope.tenant for job in going if job] == ["a", "b", "a", "b"]


def test_a_dead_lane_costs_its_tenant_no_turns_elsewhere() -> None:
    lanes = table()
    dead, other = (
        replace(each, policy=replace(each.policy, zone="z")) for each in (to("dead", connections=1), to("b"))
    )
    add(lanes, dead, mail("a", 100))
    [start] = lanes.dispatch(0)
    given = lanes.failed(start.lane, 0, REFUSED)
    assert given is not None
    assert len(given.recipients) == 98
    add(lanes, other, [*mail("a", 1, first=200), *mail("b", 3, first=500)])
    going = lanes.dispatch(0)
    assert [each.job.recipients[0].envelope.tenant for each in going[:2]] == ["b", "a"]
