"""What batches make of a record: which they apply to, and that an undo gives the record back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.events import Verb
from mqcd.core.model import Action, Area, Batch, Recipient
from mqcd.core.queueing.amendment import (
    APPLIES_TO,
    LATEST_MS,
    amended,
    applies,
    batch_of,
    purged,
    undone,
    verb_of,
)
from tests.unit.queue.support import recipient, recipients

CHANGING = [action for action in Action if action is not Action.UNDO]


def batch(action: Action, **changes: object) -> Batch:
    made = Batch(id=f"{action}-1", action=action, at=1 << 60, by="uid:1", until=5, target="a@b.example")
    return replace(made, **changes)  # type: ignore[arg-type]


@given(recipients, st.sampled_from(CHANGING), st.sampled_from(Area), st.booleans())
def test_an_undo_gives_the_record_back(each: Recipient, action: Action, area: Area, report: bool) -> None:
    each = replace(each, area=area, amended="")
    order = batch(action, report=report)
    if applies(each, order):
        changed = amended(each, order)
        assert batch_of(changed) == order.id
        assert not applies(changed, order)
        undo = batch(Action.UNDO, id="undo-1", target=order.id)
        assert undone(changed, undo) == verb_of(order)
        assert amended(changed, undo) == each
    else:
        assert area not in APPLIES_TO[action]
        with pytest.raises(ValueError, match="does not apply"):
            amended(each, order)


@given(recipients)
def test_two_batches_are_undone_in_turn(each: Recipient) -> None:
    each = replace(each, area=Area.INCOMING, amended="")
    first, second = batch(Action.HOLD), batch(Action.REDIRECT)
    changed = amended(amended(each, first), second)
    assert not applies(changed, batch(Action.UNDO, id="undo-1", target=first.id))
    back = amended(changed, batch(Action.UNDO, id="undo-2", target=second.id))
    assert back == amended(each, first)


@pytest.mark.parametrize(
    ("action", "area", "due"),
    [
        (Action.REDIRECT, Area.DEFERRED, 5),
        (Action.RELEASE, Area.HELD, 9000),
        (Action.RESCHEDULE, Area.DEFERRED, 9000),
        (Action.RETRY, Area.DEFERRED, 9000),
    ],
)
def test_an_undo_looks_through_later_retries(action: Action, area: Area, due: int) -> None:
    each = recipient(area=area, due=9000, attempts=1)
    order, undo = batch(action, until=8000), batch(Action.UNDO, id="undo-1", target=f"{action}-1")
    changed = amended(each, order)
    for name in ("retry-2", "retry-3"):
        changed = amended(changed, batch(Action.RETRY, id=name))
    assert undone(changed, undo) == verb_of(order)
    assert amended(changed, undo) == replace(each, due=due)
    assert not applies(amended(changed, batch(Action.REDIRECT, id="redirect-2")), undo)


def test_a_new_address_takes_its_own_route() -> None:
    each = recipient(area=Area.DEFERRED, route="relay.example:25")
    changed = amended(each, batch(Action.REDIRECT, target="b@new.example"))
    assert (changed.address, changed.route, changed.lane_key) == ("b@new.example", "", "new.example")
    assert amended(changed, batch(Action.UNDO, id="undo-1", target="redirect-1")) == each


@given(recipients)
def test_what_came_later_is_left_alone(each: Recipient) -> None:
    each = replace(each, area=Area.DEFERRED)
    assert not applies(each, batch(Action.HOLD, at=each.envelope.received - 1))
    assert applies(each, batch(Action.HOLD, at=each.envelope.received))


@pytest.mark.parametrize(
    ("action", "report", "sender", "area"),
    [
        (Action.REMOVE, False, "a@b.example", None),
        (Action.BOUNCE, False, "a@b.example", None),
        (Action.BOUNCE, True, "a@b.example", Area.BOUNCES),
        (Action.REMOVE, True, "a@b.example", Area.BOUNCES),
        # Nobody hears of a report that was removed.
        (Action.BOUNCE, True, "", None),
    ],
)
def test_the_end_of_a_grace(action: Action, report: bool, sender: str, area: Area | None) -> None:
    each = recipient(area=Area.DEFERRED)
    each = replace(each, envelope=replace(each.envelope, sender=sender))
    after = purged(amended(each, batch(action, report=report)))
    assert (after.area if after is not None else None) is area
    if after is not None:
        assert (after.code, after.status, after.amended) == (550, "5.7.1", "")
    with pytest.raises(ValueError, match="cannot be purged"):
        purged(each)


def test_a_damaged_trace_restores_nothing_wrong() -> None:
    each = recipient(area=Area.HELD, amended='hold-1 {"before": 7}')
    back = amended(each, batch(Action.UNDO, id="undo-1", target="hold-1"))
    assert (back.area, back.amended) == (Area.INCOMING, "")


@pytest.mark.parametrize(("time", "due"), [(-5, 0), (1 << 70, LATEST_MS)])
@pytest.mark.parametrize("action", [Action.RESCHEDULE, Action.RELEASE, Action.REMOVE, Action.BOUNCE])
def test_a_due_time_can_be_stored(action: Action, time: int, due: int) -> None:
    each = recipient(area=Area.HELD if action is Action.RELEASE else Area.DEFERRED, attempts=1)
    each = replace(each, envelope=replace(each.envelope, received=-9))
    assert amended(each, batch(action, at=time, until=time)).due == due


def test_each_action_has_its_event() -> None:
    verbs = {action: verb_of(batch(action)) for action in Action}
    assert verbs[Action.BOUNCE] is verbs[Action.REMOVE] is Verb.REMOVED
    assert verbs[Action.RETRY] is verbs[Action.RESCHEDULE] is Verb.RESCHEDULED
    assert len(set(verbs.values())) == len(Action) - 2
