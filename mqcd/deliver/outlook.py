"""What happens next to a recipient of the queue, when, and what it waits for until then. Pure.

An outlook holds if nothing else comes: no new mail ahead of it, no operator, no change of what servers and
DNS answer. Times of mail that waits for connections are estimates from the pace of its lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from mqcd.core.model import Area, Recipient
from mqcd.core.value import value
from mqcd.deliver.lanes.lane import LaneState
from mqcd.deliver.lanes.outside import MOST_GRACE_MS
from mqcd.deliver.lanes.rates import STEP_MS, TURN_MS
from mqcd.deliver.lanes.waits import Wait

NO_WAIT = Wait()


class Blocked(StrEnum):
    """What a recipient waits for."""

    NOTHING = "nothing"
    """It is claimed at the next turn of delivery."""
    ATTEMPT = "attempt"
    """The end of its attempt."""
    DNS = "dns"
    """The route of its domain."""
    DUE = "due"
    """Its time: of a retry, or before which it is not to be sent."""
    SUSPENDED = "suspended"
    """The next probe of its destination."""
    RATE = "rate"
    """Tokens of its destination, its zone or its sender."""
    SHARE = "share"
    """Its destination makes no progress and holds its share of the active set."""
    CONNECTIONS = "connections"
    """A free connection."""
    RULE = "rule"
    """A standing rule: its end, or its own turn, when the rule is applied to it."""
    HELD = "held"
    """An operator's release."""
    REMOVED = "removed"
    """The end of its grace; an operator has removed it."""
    REPORT = "report"
    """The report to its sender."""


_AT_REST: Mapping[Area, Blocked] = {
    Area.BOUNCES: Blocked.REPORT,
    Area.HELD: Blocked.HELD,
    Area.REMOVED: Blocked.REMOVED,
}


@value
class Waiting:
    """A recipient of the queue, and what is known of its state at this moment."""

    recipient: Recipient
    in_flight: bool
    wait: Wait = NO_WAIT
    """What stands before it."""
    asked: bool = False
    """Whether the route of its domain is being asked for."""


@value
class Way:
    """How a recipient's mail leaves."""

    turn: int
    """That of the next connection, see `Connector.connect`."""
    host: str = ""
    """The host of a connection that is open for it; "" = there is none."""
    source: str = ""


@value(kw_only=False)
class Outlook:
    """The next event."""

    blocked_by: Blocked
    at: int | None
    """When its attempt begins, or the probe of its destination; of an attempt under way, now. None: that
    depends on others. Wall time, ms."""


def outlook(waiting: Waiting, lane: LaneState | None, now: int) -> Outlook:
    """What happens next. `lane`: the present state of its lane, if it has one."""
    recipient = waiting.recipient
    if (rest := _AT_REST.get(recipient.area)) is not None:
        return Outlook(rest, recipient.due if rest is Blocked.REMOVED else None)
    if waiting.asked:
        return Outlook(Blocked.DNS, now)
    if lane is not None and lane.suspended and (found := _suspended(waiting, lane, now)) is not None:
        return found
    if waiting.wait.place is not None and lane is not None:
        return _in_lane(waiting.wait.place, waiting.wait, lane, now)
    if waiting.in_flight:
        return Outlook(Blocked.ATTEMPT, now)
    if (found := _outside(waiting, lane, now)) is not None:
        return found
    return Outlook(Blocked.DUE, recipient.due) if recipient.due > now else Outlook(Blocked.NOTHING, now)


def _outside(waiting: Waiting, lane: LaneState | None, now: int) -> Outlook | None:
    """None: its lane takes it as soon as it is due."""
    recipient = waiting.recipient
    booked = max(waiting.wait.sender_in_ms, lane.booked_in_ms if lane is not None else 0)
    if booked > max(recipient.due - now, 0):
        # What has been outside comes back shortly before its turn, others join at the end.
        turn = recipient.due + TURN_MS + STEP_MS // 2 if recipient.due > now else now + booked
        return Outlook(Blocked.RATE, turn)
    if lane is not None and lane.rest_in_ms and not recipient.attempts:
        return Outlook(Blocked.SHARE, max(recipient.due, now + lane.rest_in_ms))
    return None


def _suspended(waiting: Waiting, lane: LaneState, now: int) -> Outlook | None:
    """None: it is due long after the next probe, or is the next probe itself."""
    idle = not (lane.probe_in_ms or lane.connections or lane.waiting)
    late = not waiting.in_flight and waiting.recipient.due - now > lane.probe_in_ms + MOST_GRACE_MS
    return None if idle or late else Outlook(Blocked.SUSPENDED, now + lane.probe_in_ms)


def _in_lane(place: int, wait: Wait, lane: LaneState, now: int) -> Outlook:
    if wait.rate_in_ms:
        return Outlook(Blocked.RATE, now + wait.rate_in_ms)
    busy = lane.connections - lane.idle
    turns = place + 1 - max(lane.window - busy, 0)
    return Outlook(Blocked.CONNECTIONS, now + max(turns, 0) * lane.pace_ms // max(busy, 1))
