"""What an operator's batch makes of a recipient record, and how it is undone: one rule for all stores. Pure.

A record that was changed keeps in `Recipient.amended` the batch and what it was before, until its next
verdict: so undoing a batch finds exactly the recipients that nothing but retries has changed since. A retry
sets the due time alone. It stays where the undone batch set none, and its own trace goes with that batch's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, assert_never

from mqcd.core.events import Verb
from mqcd.core.model import Action, Area, Batch, Recipient

_WAITING = frozenset({Area.INCOMING, Area.DEFERRED})
_UNDELIVERED = _WAITING | {Area.HELD}
APPLIES_TO: Mapping[Action, frozenset[Area]] = {
    Action.HOLD: _WAITING,
    Action.RELEASE: frozenset({Area.HELD}),
    Action.REMOVE: _UNDELIVERED,
    Action.BOUNCE: _UNDELIVERED,
    Action.REDIRECT: _UNDELIVERED,
    Action.RESCHEDULE: _WAITING,
    Action.RETRY: _WAITING,
    Action.UNDO: _UNDELIVERED | {Area.REMOVED},
}
"""The areas whose recipients an action changes."""
_VERBS = {
    Action.HOLD: Verb.HELD,
    Action.RELEASE: Verb.RELEASED,
    Action.REMOVE: Verb.REMOVED,
    # Not `bounced`, which is a permanent reply of a next hop.
    Action.BOUNCE: Verb.REMOVED,
    Action.REDIRECT: Verb.REDIRECTED,
    Action.RESCHEDULE: Verb.RESCHEDULED,
    Action.RETRY: Verb.RESCHEDULED,
    Action.UNDO: Verb.RESTORED,
}
ENDS = frozenset({Action.REMOVE, Action.BOUNCE})
"""Actions after which a recipient is in area removed until the grace is over."""
BOUNCE_CODE, BOUNCE_STATUS = 550, "5.7.1"
_KEPT = ("area", "due", "address", "route", "code", "status", "reply", "remote")
"""Fields that an action changes, and an undo restores."""
LATEST_MS = (1 << 53) - 1
"""No time of a batch, and no due time that it sets, is later: every store and JSON keep it exactly."""
_compact = json.JSONEncoder(separators=(",", ":")).encode
SPENT = "~"
"""Before the name of a batch that can no longer be undone."""
_MOST_HISTORY = 1000
"""Characters of an earlier batch's trace that are kept, so that it can be undone after this one."""


def batch_of(recipient: Recipient) -> str:
    """The batch that changed it last; "" = none since its last verdict."""
    return _name(recipient.amended)


def spent(recipient: Recipient) -> str:
    """What a verdict leaves of the trace of the last batch: its name, for a batch that lets mail be tried is
    still under way when the first of it is deferred again, and changes nobody twice."""
    return f"{SPENT}{batch_of(recipient)}" if last_action(recipient) is not None else ""


def last_action(recipient: Recipient) -> Action | None:
    """The action of the batch that changed it last; None = of none since its last verdict."""
    action = _trace(recipient.amended)["action"]
    return next((each for each in Action if each == action), None)


def is_released(recipient: Recipient) -> bool:
    """Whether it was released since its last verdict, and at most retried since."""
    return any(_trace(each)["action"] == Action.RELEASE for each in _undoable(recipient))


def applies(recipient: Recipient, batch: Batch) -> bool:
    """Whether a batch changes this recipient. It changes none twice, and none that came after it."""
    last = batch_of(recipient)
    if last in (batch.id, f"{SPENT}{batch.id}") or recipient.area not in APPLIES_TO[batch.action]:
        return False
    if batch.action is Action.UNDO:
        return bool(_undone_by(batch, recipient))
    return recipient.envelope.received <= batch.at


def amended(recipient: Recipient, batch: Batch) -> Recipient:
    """The record that a batch makes of a recipient it applies to. Raises ValueError for any other."""
    if not applies(recipient, batch):
        text = f"batch {batch.id} ({batch.action}) does not apply to recipient {recipient.key}"
        raise ValueError(f"{text} in area {recipient.area}")
    changes = _changes(recipient, batch)
    if batch.action is Action.UNDO:
        return replace(recipient, **changes)
    changes["due"] = min(max(changes.get("due", recipient.due), 0), LATEST_MS)
    before = {name: was for name in _KEPT if (was := getattr(recipient, name)) != changes.get(name, was)}
    if recipient.amended and len(recipient.amended) <= _MOST_HISTORY:
        before["amended"] = recipient.amended
    trace = {"action": batch.action, "report": batch.report, "before": before}
    return replace(recipient, **changes, amended=f"{batch.id} {_compact(trace)}")


def amended_by(recipient: Recipient, batches: Iterable[Batch]) -> Recipient:
    """The record that these make of a recipient, one after another. Raises ValueError as `amended`."""
    return reduce(amended, batches, recipient)


def _changes(recipient: Recipient, batch: Batch) -> dict[str, Any]:
    """The fields that an action sets."""
    match batch.action:
        case Action.HOLD:
            return {"area": Area.HELD, "due": 0}
        case Action.RELEASE:
            return _due_at(batch.at if recipient.attempts else 0)
        case Action.RESCHEDULE:
            return _due_at(batch.until)
        case Action.RETRY:
            # What is due already keeps its place.
            return {"due": min(recipient.due, batch.until)}
        case Action.REDIRECT if "@" in batch.target:
            # A next hop that was chosen before is one for the old address.
            return {"address": batch.target, "route": ""}
        case Action.REDIRECT:
            return {"route": batch.target}
        case Action.BOUNCE | Action.REMOVE if batch.report:
            # The report quotes it.
            said = {"code": BOUNCE_CODE, "status": BOUNCE_STATUS, "reply": bounce_text(batch), "remote": ""}
            return {"area": Area.REMOVED, "due": batch.until, **said}
        case Action.REMOVE | Action.BOUNCE:
            return {"area": Area.REMOVED, "due": batch.until}
        case Action.UNDO:
            return _before(recipient, _undone_by(batch, recipient))
        case _:
            assert_never(batch.action)


def _due_at(due: int) -> dict[str, Any]:
    return {"area": Area.DEFERRED if due else Area.INCOMING, "due": due}


def bounce_text(batch: Batch) -> str:
    """What a report says of a recipient that an operator bounced."""
    return f"Returned by the postmaster: {batch.reason}" if batch.reason else "Returned by the postmaster"


def purged(recipient: Recipient) -> Recipient | None:
    """What follows the end of the grace: the wait for a report, or None.

    Raises ValueError for a recipient that is not in area removed.
    """
    if recipient.area is not Area.REMOVED:
        raise ValueError(f"recipient {recipient.key} in area {recipient.area} cannot be purged")
    if recipient.is_report or not _trace(recipient.amended)["report"]:
        return None
    return replace(recipient, area=Area.BOUNCES, due=0, amended="")


def verb_of(batch: Batch) -> Verb:
    """The event of it."""
    return _VERBS[batch.action]


def undone(recipient: Recipient, undo: Batch) -> str:
    """The event that an undo takes back; "" when there is none."""
    verb = _VERBS.get(_trace(_undone_by(undo, recipient))["action"])
    return str(verb) if verb is not None else ""


def _undone_by(undo: Batch, recipient: Recipient) -> str:
    """The trace of the batch that an undo takes back; "" when something else has changed the record since."""
    return next((each for each in _undoable(recipient) if _name(each) == undo.target), "")


def _undoable(recipient: Recipient) -> Iterator[str]:
    """Traces of batches that can be undone, the last first: retries, and the one that came before them."""
    traced = recipient.amended
    yield traced
    while (trace := _trace(traced))["action"] == Action.RETRY:
        traced = trace["before"].get("amended", "")
        yield traced


def _name(traced: str) -> str:
    return traced.partition(" ")[0]


def _trace(amended: str) -> dict[str, Any]:
    try:
        trace = json.loads(amended.partition(" ")[2])
        if isinstance(trace, dict) and isinstance(trace["before"], dict):
            return trace
    except (ValueError, KeyError):
        pass
    return {"action": "", "report": False, "before": {"area": Area.INCOMING, "amended": ""}}


def _before(recipient: Recipient, traced: str) -> dict[str, Any]:
    """The fields that a batch has changed, as they were. Raises ValueError for a trace that is none."""
    before = _trace(traced)["before"]
    if not before.keys() <= {*_KEPT, "amended"}:
        raise ValueError(f"recipient {recipient.key} has no trace of a batch: {traced[:80]!r}")
    return {"amended": "", **before, **({"area": Area(before["area"])} if "area" in before else {})}
