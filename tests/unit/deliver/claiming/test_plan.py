"""What the loop of delivery does next, and when."""

from __future__ import annotations

import pytest

from mqcd.deliver.claiming.plan import EMPTY_CLAIM_MS, MAX_SLEEP_MS, Plan
from mqcd.deliver.lanes.decisions import STUCK_MS


def test_a_claim_that_gave_nothing_is_not_repeated_at_once() -> None:
    plan = Plan()
    assert not plan.claimed(10, 0, some=False, due=True, refused=False)
    assert not plan.claims(10, EMPTY_CLAIM_MS - 1)
    assert plan.sleep(0, -5) == EMPTY_CLAIM_MS
    assert plan.claims(10, EMPTY_CLAIM_MS)


def test_a_claim_of_some_with_more_due_is_repeated_at_once() -> None:
    plan = Plan()
    assert plan.claimed(10, 0, some=True, due=True, refused=False)
    assert plan.claims(10, 0)
    assert not plan.claimed(10, 0, some=True, due=False, refused=False)


def test_new_mail_is_claimed_though_the_last_claim_gave_nothing() -> None:
    plan = Plan()
    plan.failed(0)
    assert plan.new_mail(10, several=False)
    assert plan.claims(10, 0)


@pytest.mark.parametrize(
    ("some", "refused", "again"), [(False, False, STUCK_MS), (False, True, 0), (True, False, 0)]
)
def test_a_claim_beyond_the_active_set_has_a_time_of_its_own(some: bool, refused: bool, again: int) -> None:
    plan = Plan()
    assert plan.claimed(0, 0, some=some, due=False, refused=refused) is some
    assert plan.claims(0, again)
    assert not plan.claims(0, again - 1)
    assert plan.claims(10, 0)


def test_new_mail_of_tenants_is_claimed_beyond_the_active_set() -> None:
    plan = Plan()
    plan.claimed(0, 0, some=False, due=False, refused=False)
    assert not plan.new_mail(0, several=False)
    assert not plan.claims(0, 0)
    assert plan.new_mail(0, several=True)
    assert plan.claims(0, 0)


def test_a_full_active_set_is_relieved_once_in_a_while() -> None:
    plan = Plan()
    assert not plan.relieves(1, 0)
    assert [plan.relieves(0, now) for now in (0, STUCK_MS - 1, STUCK_MS)] == [True, False, True]


@pytest.mark.parametrize(
    ("passed_over", "passes_over", "room", "wakes"),
    [(False, False, 1, False), (True, False, 1, True), (False, True, 1, True), (False, False, 0, True)],
)
def test_what_leaves_wakes_where_it_kept_others_out(
    passed_over: bool, passes_over: bool, room: int, wakes: bool
) -> None:
    plan = Plan()
    plan.claiming(passed_over)
    assert plan.left(plan.kept_out(room, passes_over), 1, several=False) is wakes
    assert not plan.left(plan.kept_out(room, passes_over), 0, several=False)


def test_what_leaves_wakes_for_tenants_unless_a_claim_gave_them_nothing() -> None:
    plan = Plan()
    assert plan.left(False, 1, several=True)
    plan.claimed(0, 1, some=False, due=False, refused=False)
    assert not plan.left(False, 1, several=True)


def test_the_next_look_is_the_earliest() -> None:
    plan = Plan()
    assert plan.sleep(0, None, None, None) == MAX_SLEEP_MS
    assert plan.sleep(0, 300, 200, None) == 200
    assert plan.sleep(0, 100, 200, None) == 100
