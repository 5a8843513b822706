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
from mqcd.core.queueing.amendment import batch_of
from mqcd.core.queueing.spid import format_spid
from mqcd.core.queueing.transition import last_attempt
from mqcd.core.selecting.rules import RuleAction, StandingRule
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.lanes.lane import LaneState
from mqcd.deliver.outlook import Blocked, Outlook, Waiting, Way, outlook
from mqcd.deliver.routing.policy import Hop, Policy
from mqcd.deliver.routing.router import Router
from mqcd.deliver.routing.routing import Destination, Rule, Unroutable, order

Lanes = Callable[[str], LaneState | None]
"""The state of the lane of this key; None: no such lane, or no server running."""
Rules = Callable[[Recipient, Hop | None], StandingRule | None]
"""The standing rule that counts for a recipient; the hop is None where there is none."""


NEW = Way(turn=1)
"""Without a server no connection is open."""
Ways = Callable[[Hop, tuple[int, int]], Way]
"""The way of a recipient, by its lane's hop and its key."""
_AT_AREA = (Blocked.HELD, Blocked.REMOVED, Blocked.REPORT)
_OVER_OPEN = (Blocked.ATTEMPT, Blocked.RATE, Blocked.CONNECTIONS)


@dataclass(eq=False, repr=False)
class Explainer:
    """Explains by the rules of one configuration."""

    _router: Router
    _clock: Clock
    _lanes: Lanes
    _rules: Rules
    _maxrecips: int
    _ways: Ways = lambda _lane, _key: NEW

    async def would_go(self, recipient: str, domain: str, sender: str) -> dict[str, object]:
        """Where mail from `sender` to this address would go now."""
        envelope = Envelope(spid=0, sender=sender, received=self._clock.now())
        pattern = Recipient(envelope=envelope, size=0, qid=1, address=_address(recipient, domain))
        route, about, rule = self._about(pattern, *await self._router.trace(envelope, domain))
        if isinstance(route, Hop) and (mode := route.policy.schedule.holding.mode(domain)) is not None:
            about["rule"] = f"{about['rule']}, held by mta/queue/held (mode {mode})"
        blocks = None if rule is None else _stopped(rule)
        asked: dict[str, object] = {"recipient": recipient, "sender": sender}
        return {**asked, **about, "due": None, "waiting_for": blocks, "next": None}

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
        now = self._clock.now()
        ahead = _under(rule, waiting, outlook(waiting, lane, now))
        return {
            "spid": format_spid(recipient.spid),
            "qid": recipient.qid,
            "recipient": recipient.address,
            "sender": recipient.envelope.sender,
            **about,
            "attempts": recipient.attempts,
            "reply": _last_reply(recipient) or None,
            "due": format_time(due) if due else None,
            "waiting_for": waiting_for(waiting, ahead, lane, refusal, now, rule),
            "next": await self._next(route, recipient, ahead),
        }

    async def _next(self, route: Hop | Unroutable, recipient: Recipient, ahead: Outlook) -> dict[str, object]:
        """Host and source address of its next attempt, when that is, and what it waits for until then."""
        host, source = "", ""
        if isinstance(route, Hop) and ahead.blocked_by not in _AT_AREA:
            way = self._ways(route, recipient.key)
            if way.host and ahead.blocked_by in _OVER_OPEN:
                host, source = way.host, way.source
            else:
                host = _host(route.destination, recipient, way.turn)
                source = await self._router.source(route, host, way.turn)
        return {
            "host": host or None,
            "source": source or None,
            "at": format_time(ahead.at) if ahead.at is not None else None,
            "blocked_by": ahead.blocked_by.value,
        }

    def _about(
        self, recipient: Recipient, route: Hop | Unroutable, rule: Rule
    ) -> tuple[Hop | Unroutable, dict[str, object], StandingRule | None]:
        standing = self._rules(recipient, route if isinstance(route, Hop) else None)
        if isinstance(route, Hop) and standing is not None and standing.action is RuleAction.SLOW:
            route = self._router.slowed(route, standing)
        about = _route(route, rule, self._maxrecips)
        return route, {**about, "standing_rule": None if standing is None else standing.id}, standing


def _under(rule: StandingRule | None, waiting: Waiting, ahead: Outlook) -> Outlook:
    """The outlook of a recipient for which a standing rule counts."""
    stops = rule is not None and rule.action is not RuleAction.SLOW
    if rule is None or not stops or waiting.in_flight or ahead.blocked_by in _AT_AREA:
        return ahead
    return Outlook(Blocked.RULE, (rule.until or None) if rule.action is RuleAction.SUSPEND else ahead.at)


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
    Blocked.REPORT: "the report to its sender",
    Blocked.HELD: "its release by an operator",
    Blocked.REMOVED: "the end of its grace: an operator has removed it",
    Blocked.DNS: "the route of its domain, for which DNS is asked",
    Blocked.ATTEMPT: "the end of its attempt",
}


def _at_rest(waiting: Waiting, ahead: Outlook, now: int) -> str:
    """What a recipient waits for that no attempt comes for; "" for all others."""
    recipient = waiting.recipient
    if recipient.area is Area.HELD and recipient.due:
        end = _ahead(recipient.due, now)
        return f"a request for the held mail of {recipient.domain}, or its age limit{end}"
    if ahead.blocked_by not in _AT_AREA:
        return ""
    batch = batch_of(recipient)
    return _AT_REST[ahead.blocked_by] + (f" (batch {batch})" if batch else "")


_BY_RULE = {
    RuleAction.HOLD: "its turn, when it is held by",
    RuleAction.BOUNCE: "its turn, when it is bounced by",
    RuleAction.SUSPEND: "the end of",
}


def waiting_for(
    waiting: Waiting,
    ahead: Outlook,
    lane: LaneState | None,
    refusal: Reply | None,
    now: int,
    rule: StandingRule | None = None,
) -> str:
    """What the recipient waits for, as text; `rule` is the standing rule that counts for it."""
    recipient = waiting.recipient
    if rest := _at_rest(waiting, ahead, now):
        return rest
    if rule is not None and (stopped := _stopped(rule)):
        return stopped if not waiting.in_flight else f"the end of its attempt; then {stopped}"
    if refusal is not None:
        return f"its next attempt{_ahead(recipient.due, now)}, which would end with {refusal}"
    if lane is not None and lane.suspended and (look := _probe(lane)):
        dead = f"{lane.destination} suspended, {look}"
        if ahead.blocked_by is not Blocked.DUE:
            return dead
        return f"its next attempt{_ahead(recipient.due, now)}, and {dead}"
    if ahead.blocked_by in _AT_REST:
        return _AT_REST[ahead.blocked_by]
    return _its_turn(waiting, ahead, lane, now)


def _its_turn(waiting: Waiting, ahead: Outlook, lane: LaneState | None, now: int) -> str:
    recipient = waiting.recipient
    if waiting.wait.place is not None and lane is not None:
        at_work = f"{lane.connections - lane.idle} of {lane.window} connections at work"
        rate = waiting.wait.rate_in_ms
        allowed = f", its rate allows it in {_seconds(rate)}" if rate else ""
        return f"its turn: {waiting.wait.place} before it, {at_work}{allowed}"
    if ahead.blocked_by in (Blocked.RATE, Blocked.SHARE) and ahead.at is not None:
        why = "rate" if ahead.blocked_by is Blocked.RATE else "destination without progress"
        return f"its turn{_ahead(ahead.at, now)}: {why}"
    if ahead.blocked_by is Blocked.DUE:
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


def _host(destination: Destination, recipient: Recipient, turn: int) -> str:
    """The host that a new connection goes to: the first one, or where its last attempt went when those that
    are preferred did not answer."""
    last = last_attempt(recipient).host
    answered = any(last in group for group in destination.hosts[1:])
    return last if answered else order(destination, turn)[0]


def _probe(lane: LaneState) -> str:
    """When a suspended destination is probed; "" = when mail for it is due."""
    if lane.probe_in_ms:
        return f"next probe in {_seconds(lane.probe_in_ms)}"
    if lane.connections:
        return "probe under way"
    return "next probe now" if lane.waiting else ""


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
