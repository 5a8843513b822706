"""Routes claimed recipients into lanes. A route may need DNS.

Guarantees: each recipient ends in a lane, given back, settled with the failure of its route, or as a
standing rule says; one domain's route is looked up once, however many recipients wait for it. Nothing that
happens to one recipient or domain stops the others. Settings read: what `router` reads, and the advice in
effect.

| in this order | `_place` of a recipient that comes | `_route` of each that waited for it |
|---|---|---|
| settings or advice have changed meanwhile | | placed anew |
| a batch is to reach it | settled: as the batch says | the same |
| a rule keeps it (not asked yet if one on sites may be stronger) | settled, or parked | the same |
| never tried, and suppressed by advice (likewise) | settled: fails | the same |
| its hop is known, or an operator has chosen it | in its lane | in its lane |
| there is no route | | settled: by its reply |
| else | waits in `_waiting`; the first one of its domain begins `_route` | |
| an exception | logged; settled: deferred, 4.3.0 | the same |

While delivery stops, what would be placed is parked instead, due at once. What comes behind its route
is not: `Deliverer.stop` parks it as it empties the table.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mqcd.core.model import Attempt, Phase, Recipient, Settlement
from mqcd.core.ports import Resolver
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.rules import StandingRule
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.lanes.entering import Entering
from mqcd.deliver.lanes.lane import Give
from mqcd.deliver.reaching import Reaching
from mqcd.deliver.routing.policy import Hop
from mqcd.deliver.routing.router import Router
from mqcd.deliver.routing.routing import Route, Unroutable
from mqcd.deliver.settling import Settling
from mqcd.deliver.standing import KeptBack, Standing
from mqcd.deliver.terms import Terms
from mqcd.deliver.verdicts import INTERNAL, failure

Suppressed = Callable[[str], Reply | None]
"""The reply that refuses mail to an address without an attempt; None to try it."""

_log = logging.getLogger("mqcd.deliver")


@dataclass(eq=False, repr=False)
class Placing:
    """One per deliverer; calls `changed` when lanes may have got mail."""

    _terms: Terms
    _entering: Entering
    _resolver: Resolver
    _settling: Settling
    _reaching: Reaching
    _standing: Standing
    _changed: Callable[[], None]
    suppressed: Suppressed | None = None
    """Recipients that advice suppresses."""
    _waiting: dict[str, list[Recipient]] = field(default_factory=dict)
    _asked_at: dict[str, int] = field(default_factory=dict)
    """By domain: since when its route is being asked for."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    router: Router = field(init=False)

    def __post_init__(self) -> None:
        self.reroute()

    def reroute(self) -> None:
        """Route by the settings, schedule and advice that now hold."""
        terms = self._terms
        self.router = Router(
            terms.settings,
            terms.schedule,
            self._resolver,
            terms.clock,
            terms.own_names,
            terms.shapings,
            terms.processes,
            terms.generation,
        )

    def known(self, recipients: Sequence[Recipient]) -> Hop | None:
        """The hop that all recipients of a new message have, if it is known without DNS, and neither advice
        nor a rule has a say in it."""
        first = recipients[0]
        domain = first.domain
        if len(recipients) > 1 and any(each.domain != domain for each in recipients):
            return None
        if self.suppressed is not None and any(self.suppressed(each.address) for each in recipients):
            return None
        # This is new mail: no operator has chosen a next hop for it, so its domain is its lane key.
        hop = self.router.known(first.envelope, domain)
        if self._standing.stands and any(self._standing.find(each, hop) for each in recipients):
            return None
        return hop

    def place(self, claimed: Sequence[Recipient], content: bytes | None = None) -> None:
        """Put each recipient into its lane, at once or after its domain's route is looked up; `content`: of
        their one message, if it is at hand."""
        if self._terms.stopping:
            self._settling.park(claimed)
            return
        kept = KeptBack()
        gives = [give for each in claimed if (give := self._place(each, kept, content)) is not None]
        if gives:
            self._settling.give(*gives)
        self._settling.keep_back(kept)

    def asked(self) -> Mapping[str, tuple[int, int]]:
        """By domain whose route is being asked for: how many wait for it, and since when."""
        return {domain: (len(self._waiting[domain]), at) for domain, at in self._asked_at.items()}

    def asks(self, recipient: Recipient) -> bool:
        """Whether the route of its domain is being asked for."""
        return any(each.key == recipient.key for each in self._waiting.get(recipient.lane_key, ()))

    def stop(self) -> list[Recipient]:
        """Cancel all look-ups; returns the recipients that waited for them, which are the caller's then."""
        for task in tuple(self._tasks):
            task.cancel()
        waiting = [each for group in self._waiting.values() for each in group]
        self._waiting.clear()
        self._asked_at.clear()
        return waiting

    def _place(self, recipient: Recipient, kept: KeptBack, content: bytes | None) -> Give | None:
        try:
            if self._is_amended(recipient, kept):
                return None
            domain = recipient.lane_key
            if recipient.route:
                known: Hop | None = self.router.chosen(recipient)
            else:
                known = self.router.known(recipient.envelope, domain)
            # A rule keeps it, or a stronger one on sites: the site decides which. So advice need not be asked
            # here; `_route` asks for it, as neither rule may stand by then.
            asks = known is None and self._standing.awaits_site(recipient)
            rule, is_decided = (None, False) if asks else self._decide(recipient, domain, known, kept)
            if is_decided:
                return None
            if known is not None:
                return self._enter(recipient, domain, known, rule, content)
            if (waiting := self._waiting.get(domain)) is not None:
                waiting.append(recipient)
            else:
                self._waiting[domain] = [recipient]
                self._asked_at[domain] = self._terms.clock.monotonic()
                task = asyncio.get_running_loop().create_task(self._route(domain))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except Exception:
            self._own_fault(recipient)
        return None

    def _enter(
        self,
        recipient: Recipient,
        domain: str,
        hop: Hop,
        rule: StandingRule | None,
        content: bytes | None = None,
    ) -> Give | None:
        """Put a recipient into its lane. `rule`: the one that slows it down."""
        if rule is not None:
            hop = self.router.slowed(hop, rule)
        return self._entering.add(recipient, domain, hop, self._terms.clock.monotonic(), content)

    def _is_amended(self, recipient: Recipient, kept: KeptBack) -> bool:
        """Whether batches make something else of a recipient: then that is in `kept`."""
        amended = self._reaching.take_amendment(recipient) if self._reaching.awaited else None
        if amended is not None:
            kept.settlements.append(Settlement(recipient=recipient, verdict=amended))
        return amended is not None

    def _decide(
        self, recipient: Recipient, domain: str, hop: Hop | None, kept: KeptBack
    ) -> tuple[StandingRule | None, bool]:
        """The rule that counts for a recipient, and whether that is not to be tried: the rule keeps it back
        (then it is in `kept`), or advice suppresses it (then it has failed)."""
        rule = self._standing.find(recipient, hop) if self._standing.stands else None
        if rule and self._standing.apply(rule, recipient, hop, self._terms.schedule.longest, kept):
            return rule, True
        suppressed = None if recipient.attempts else self.suppressed
        no = suppressed(recipient.address) if suppressed else None
        if no is not None:
            self._fail([recipient], domain, no)
        return rule, no is not None

    async def _route(self, domain: str) -> None:
        router = self.router
        try:
            route = await router.find(domain)
        except Exception:
            _log.exception("internal error: no route for domain %r", domain)
            route = Unroutable(reply=INTERNAL)
        recipients = self._waiting.pop(domain, [])
        self._asked_at.pop(domain, None)
        if self.router is router:
            self._place_routed(recipients, domain, route)
        else:
            # What was found is not how the mail goes now.
            self.place(recipients)
        self._changed()

    def _place_routed(self, recipients: list[Recipient], domain: str, route: Route) -> None:
        """Put those that waited for a route into their lanes."""
        kept, gives, failed = KeptBack(), [], []
        for each in recipients:
            try:
                if self._is_amended(each, kept):
                    continue
                # Without a site, rules on sites say nothing.
                hop = None if isinstance(route, Unroutable) else self.router.hop(each.envelope, domain, route)
                rule, is_decided = self._decide(each, domain, hop, kept)
                if is_decided:
                    continue
                if hop is None:
                    failed.append(each)
                elif (give := self._enter(each, domain, hop, rule)) is not None:
                    gives.append(give)
            except Exception:
                self._own_fault(each)
        if isinstance(route, Unroutable) and failed:
            self._fail(failed, domain, route.reply)
        if gives:
            self._settling.give(*gives)
        self._settling.keep_back(kept)

    def _own_fault(self, recipient: Recipient) -> None:
        """An exception ended the placing of a recipient: log it and put the recipient off."""
        name = format_spid(recipient.spid)
        _log.exception("internal error: no route for %s", recipient.address, extra={"spid": name})
        self._fail([recipient], recipient.domain, INTERNAL)

    def _fail(self, recipients: list[Recipient], domain: str, reply: Reply) -> None:
        attempt = Attempt(destination=domain, phase=Phase.ROUTE, at=self._terms.clock.now())
        outcome = failure(reply, Phase.ROUTE)
        self._settling.settle_all(recipients, outcome, attempt, self._terms.schedule, domain or "local")
