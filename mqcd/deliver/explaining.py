"""Why a recipient waits, and where it would go: for `mqcd explain` and /v1/explain.

The same routing and the same policies as delivery's, asked without trying anything; what a running server
knows besides (lanes, recipients in flight) is handed in where there is one. `waiting_for` is pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mqcd.config.kinds.fields import RateKind
from mqcd.core.events import format_time
from mqcd.core.model import Area, Envelope, Recipient
from mqcd.core.ports import Clock
from mqcd.core.queueing.spid import format_spid
from mqcd.core.queueing.transition import last_attempt
from mqcd.core.selecting.rules import RuleAction, StandingRule
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.lanes.lane import LaneState
from mqcd.deliver.lanes.outside import MOST_GRACE_MS
from mqcd.deliver.routing.policy import Hop, Policy
from mqcd.deliver.routing.router import Router
from mqcd.deliver.routing.routing import Rule, Unroutable, order


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """A recipient of the queue, and what is known of its state at this moment."""

    recipient: Recipient
    in_flight: bool
    place: int | None = None
    """Jobs ahead of it in its lane; None where it is in none."""


Lanes = Callable[[str], LaneState | None]
"""The state of the lane of this key; None: no such lane, or no server running."""
Rules = Callable[[Recipient, Hop | None], StandingRule | None]
"""The standing rule that counts for a recipient; the hop is None where there is none."""


class Explainer:
    """Explains by the rules of one configuration."""

    def __init__(self, router: Router, clock: Clock, lanes: Lanes, rules: Rules, maxrecips: int) -> None:
        self._router = router
        self._rules = rules
        self._clock = clock
        self._lanes = lanes
        self._maxrecips = maxrecips

    async def would_go(self, recipient: str, domain: str, sender: str) -> dict[str, object]:
        """Where mail from `sender` to this address would go now."""
        envelope = Envelope(spid=0, sender=sender, received=self._clock.now())
        pattern = Recipient(envelope=envelope, size=0, qid=1, address=_address(recipient, domain))
        route, about, rule = self._about(pattern, *await self._router.trace(envelope, domain))
        if isinstance(route, Hop) and (mode := route.policy.schedule.holding.mode(domain)) is not None:
            about["rule"] = f"{about['rule']}, held by mta/queue/held (mode {mode})"
        blocks = None if rule is None else _stopped(rule)
        return {"recipient": recipient, "sender": sender, **about, "due": None, "waiting_for": blocks}

    async def why(self, waiting: Waiting) -> dict[str, object]:
        """Where a recipient of the queue goes, and what it waits for."""
        recipient = waiting.recipient
        if recipient.route:
            traced: tuple[Hop | Unroutable, Rule] = self._router.chosen(recipient), Rule.OPERATOR
        else:
            traced = await self._router.trace(recipient.envelope, recipient.domain)
        route, about, rule = self._about(recipient, *traced)
        lane = self._lanes(route.key) if isinstance(route, Hop) else None
        refusal = route.reply if isinstance(route, Unroutable) else None
        due = recipient.due if recipient.area is not Area.BOUNCES else 0
        return {
            "spid": format_spid(recipient.spid),
            "qid": recipient.qid,
            "recipient": recipient.address,
            "sender": recipient.envelope.sender,
            **about,
            "attempts": recipient.attempts,
            "reply": _last_reply(recipient) or None,
            "due": format_time(due) if due else None,
            "waiting_for": waiting_for(waiting, lane, refusal, self._clock.now(), rule),
        }

    def _about(
        self, recipient: Recipient, route: Hop | Unroutable, rule: Rule
    ) -> tuple[Hop | Unroutable, dict[str, object], StandingRule | None]:
        standing = self._rules(recipient, route if isinstance(route, Hop) else None)
        if isinstance(route, Hop) and standing is not None and standing.action is RuleAction.SLOW:
            route = self._router.slowed(route, standing)
        about = _route(route, rule, self._maxrecips)
        return route, {**about, "standing_rule": None if standing is None else standing.id}, standing


def _route(route: Hop | Unroutable, rule: Rule, maxrecips: int) -> dict[str, object]:
    if isinstance(route, Unroutable):
        return {
            "destination": None,
            "rule": f"{rule.value}: {route.reply}",
            "zone": None,
            "mx": [],
            "limits": None,
            "schedule": None,
        }
    return {
        "destination": route.destination.name,
        "rule": rule.value,
        "zone": route.policy.zone or None,
        "mx": order(route.destination, 0),
        "limits": _limits(route.policy, maxrecips),
        "schedule": _schedule(route.policy),
    }


def _address(asked: str, domain: str) -> str:
    return asked if "@" in asked else f"@{domain}"


_AT_REST = {
    Area.BOUNCES: "the report to its sender",
    Area.HELD: "its release by an operator",
    Area.REMOVED: "the end of its grace: an operator has removed it",
}


def _at_rest(recipient: Recipient, now: int) -> str:
    """What a recipient waits for that no attempt comes for; "" for all others."""
    if recipient.area is Area.HELD and recipient.due:
        end = _ahead(recipient.due, now)
        return f"a request for the held mail of {recipient.domain}, or its age limit{end}"
    return _AT_REST.get(recipient.area, "")


_BY_RULE = {
    RuleAction.HOLD: "its turn, when it is held by",
    RuleAction.BOUNCE: "its turn, when it is bounced by",
    RuleAction.SUSPEND: "the end of",
}


def waiting_for(
    waiting: Waiting,
    lane: LaneState | None,
    refusal: Reply | None,
    now: int,
    rule: StandingRule | None = None,
) -> str:
    """What the recipient waits for, as text; `rule` is the standing rule that counts for it."""
    recipient = waiting.recipient
    if rest := _at_rest(recipient, now):
        return rest
    if rule is not None and (stopped := _stopped(rule)):
        return stopped if not waiting.in_flight else f"the end of its attempt; then {stopped}"
    if refusal is not None:
        return f"its next attempt{_ahead(recipient.due, now)}, which would end with {refusal}"
    if lane is not None and lane.suspended and (look := _probe(lane)):
        dead = f"{lane.destination} suspended, {look}"
        if waiting.in_flight or recipient.due - now <= lane.probe_in_ms + MOST_GRACE_MS:
            return dead
        return f"its next attempt{_ahead(recipient.due, now)}, and {dead}"
    if waiting.place is not None and lane is not None:
        busy = lane.connections - lane.idle
        at_work = f"{busy} of {lane.window} connections at work{_rate(lane)}"
        return f"its turn: {waiting.place} before it, {at_work}"
    if waiting.in_flight:
        return "the end of its attempt"
    if recipient.due > now and lane is not None and not recipient.attempts:
        # Never tried and not due: its lane has given it back.
        return f"its turn: back in its lane in {_seconds(recipient.due - now)}{_rate(lane)}"
    if recipient.due > now:
        why = _last_reply(recipient)
        return f"its next attempt{_ahead(recipient.due, now)}{f', after {why}' if why else ''}"
    return "its next attempt, which is due"


def _stopped(rule: StandingRule) -> str | None:
    """What mail waits for that a rule selects; None where it is tried all the same."""
    if rule.action is RuleAction.SLOW:
        return None
    end = f"until {format_time(rule.until)}" if rule.until else "until it is cancelled"
    why = f": {rule.reason}" if rule.reason else ""
    return f"{_BY_RULE[rule.action]} {rule}, which stands {end}{why}"


def _probe(lane: LaneState) -> str:
    """When a suspended destination is probed; "" = when mail for it is due."""
    if lane.probe_in_ms:
        return f"next probe in {_seconds(lane.probe_in_ms)}"
    if lane.connections:
        return "probe under way"
    return "next probe now" if lane.waiting else ""


def _rate(lane: LaneState) -> str:
    return f", the rate allows the next one in {_seconds(lane.rate_in_ms)}" if lane.rate_in_ms else ""


def _ahead(due: int, now: int) -> str:
    return f" in {_seconds(due - now)}" if due > now else ""


def _seconds(ms: int) -> str:
    return f"{-(-ms // 1000)} s"


def _last_reply(recipient: Recipient) -> str:
    if not recipient.code:
        return ""
    host = last_attempt(recipient).host
    remote = f" from {host}" if host else ""
    return " ".join(filter(None, (str(recipient.code), recipient.status, recipient.reply))) + remote


def _limits(policy: Policy, maxrecips: int) -> dict[str, object]:
    return {
        "maxserverconnections": policy.connections,
        "maxrecips": maxrecips,
        "rate": RateKind().show(policy.rate) if policy.rate is not None else None,
        "tls": policy.tls.value,
        "helo": policy.helo,
        "sources": [source.address for source in policy.sources],
        "entry": policy.entry or None,
        "advice": policy.advice or None,
    }


def _schedule(policy: Policy) -> dict[str, object]:
    schedule = policy.schedule
    return {
        "retry_delays_ms": list(schedule.delays),
        "retry_jitter": schedule.jitter,
        "retry_maxtime_ms": schedule.maxtime,
        "retry_maxtime_reports_ms": schedule.maxtime_reports,
    }
