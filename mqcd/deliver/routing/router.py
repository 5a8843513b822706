"""Finds a recipient's hop: asks DNS for what `routing` needs, and caches the answers.

Guarantees: never raises for a domain's sake; no answer from DNS is temporary (4.4.3), and only a certain
"there is none" is permanent (5.1.2). Routes that DNS gave are kept at most `KEEP_MS`. The resolver keeps
records by their TTL, and has concurrent look-ups of one domain share one query (`net.resolver`): this class
does not. Settings read: deliver/relays, smtpport, client/fallbackMX_A, and what `policy` reads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from mqcd.config.advice import Shaping
from mqcd.config.settings import DeliverSettings
from mqcd.core.address import normal_domain
from mqcd.core.errors import NameNotFound, ResolveFailed
from mqcd.core.model import Envelope, Recipient
from mqcd.core.ports import Clock, Resolver
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.selecting.live import is_hop
from mqcd.core.selecting.rules import StandingRule
from mqcd.core.selecting.where import Node
from mqcd.core.selecting.where_fields import site_name
from mqcd.deliver.routing import routing
from mqcd.deliver.routing.policy import Hop, Policies, hop, sources_for
from mqcd.deliver.routing.routing import Destination, Route, Rule, Unroutable

KEEP_MS = 30_000
"""So that a burst of mail for one domain is routed once. A change in DNS counts so much later, at most, than
the TTL says."""
MAX_KEPT = 10_000


class Router:
    """Finds hops. Domains are in comparable form throughout."""

    def __init__(
        self,
        settings: DeliverSettings,
        schedule: RetrySchedule,
        resolver: Resolver,
        clock: Clock,
        own_names: Collection[str] = (),
        shapings: Sequence[Shaping] = (),
        processes: int = 1,
        generation: int = 0,
    ) -> None:
        """`processes`: of all shards, see `Policies`; `generation`: see `Hop`."""
        self._generation = generation
        self._policies = Policies(settings, schedule, shapings, processes)
        self._relays = routing.Relays(settings.relays)
        self._own_names = frozenset(map(normal_domain, own_names))
        self._port = settings.smtpport
        self._fallback = settings.client.fallback_mx_a
        self._resolver = resolver
        self._clock = clock
        self._kept: OrderedDict[str, tuple[int, Destination]] = OrderedDict()
        self._named = lru_cache(MAX_KEPT)(self._relays.named)
        """Of a next hop that an operator chose, the destination: the same object each time."""
        self._hops: OrderedDict[tuple[str, str], Hop] = OrderedDict()

    def known(self, envelope: Envelope, domain: str) -> Hop | None:
        """The hop of a recipient, if it is known without DNS."""
        relay = self._relays.find(envelope, domain)
        destination = self._kept_route(domain) if relay is None else relay[0]
        return None if destination is None else self.hop(envelope, domain, destination)

    def chosen(self, recipient: Recipient) -> Hop:
        """The hop of a recipient for which an operator chose one: its `route` is then its domain in lanes."""
        return self.hop(recipient.envelope, recipient.route, self._named(recipient.route))

    @property
    def zones(self) -> Mapping[str, Node]:
        """By name the condition on the mail of each zone; "" is mail that no zone takes."""
        return self._policies.zones

    @property
    def origins(self) -> Sequence[tuple[Node, str]]:
        """The condition on the mail that goes by a relay for its origin, and its site: the first one that
        fits counts."""
        return [(node, site_name(relay.name)) for node, relay in self._relays.origins]

    async def site(self, key: str) -> str:
        """The site of mail with this lane key that none of `origins` takes, as a condition compares it; ""
        without a route now."""
        if is_hop(key):
            return site_name(self._named(key).name)
        relay = self._relays.of_domain(key)
        route = await self.find(key) if relay is None else relay[0]
        return site_name(route.name) if isinstance(route, Destination) else ""

    async def trace(self, envelope: Envelope, domain: str) -> tuple[Hop | Unroutable, Rule]:
        """Where a recipient's mail goes, and by which rule."""
        relay = self._relays.find(envelope, domain)
        if relay is not None:
            return self.hop(envelope, domain, relay[0]), relay[1]
        route = await self.find(domain)
        if isinstance(route, Unroutable):
            return route, Rule.LITERAL if domain.startswith("[") else Rule.MX
        return self.hop(envelope, domain, route), routing.rule_of(domain, route)

    def hop(self, envelope: Envelope, domain: str, destination: Destination) -> Hop:
        """The hop of a recipient whose mail goes to `destination`."""
        key = self._policies.zone_of(envelope, domain), domain
        kept = self._hops.get(key)
        if kept is not None and kept.destination is destination:
            return kept
        hosts = [normal_domain(host) for group in destination.hosts for host in group]
        sole = self._policies.one_zone(domain) and not self._relays.by_origin(domain)
        policy = self._policies.policy(*key, hosts, destination if destination.relay else None)
        made = self._hops[key] = hop(destination, policy, sole, self._generation)
        if len(self._hops) > MAX_KEPT:
            self._hops.popitem(last=False)
        return made

    def slowed(self, hop_: Hop, rule: StandingRule) -> Hop:
        """The hop of mail that a rule slows down: a lane of its own."""
        policy = self._policies.slowed(hop_.policy, rule)
        sole = hop_.sole and rule.of_destinations
        return hop(hop_.destination, policy, sole, hop_.generation)

    def sites(self) -> Mapping[str, str]:
        """As `site` by lane key, where that is known without DNS: from the hops that mail has had.

        A hop's destination that an origin may have chosen (`chosen`) says nothing of other mail. What counts
        first is a relay for the domain, or for all (`own`), for `site` goes by that.
        """
        chosen = {relay for _, relay in self._relays.origins}
        found = {key: each.destination for (_, key), each in self._hops.items()}
        relays = {key: self._relays.of_domain(key) for key in found if not is_hop(key)}
        own = {key: relay[0] for key, relay in relays.items() if relay is not None}
        known = {key: each for key, each in found.items() if is_hop(key) or each not in chosen}
        return {key: site_name(each.name) for key, each in (known | own).items()}

    async def source(self, hop: Hop, host: str, turn: int) -> str:
        """The address that a new connection to a host comes from; "" = the system's choice, or not known."""
        if not hop.policy.sources:
            return ""
        try:
            address = (await self._resolver.addresses(host))[0]
        except (NameNotFound, ResolveFailed):
            return ""
        return next(iter(sources_for(hop.policy.sources, address, turn)), "")

    def _kept_route(self, domain: str) -> Destination | None:
        kept = self._kept.get(domain)
        if kept is not None and kept[0] > self._clock.monotonic():
            return kept[1]
        return None

    async def find(self, domain: str) -> Route:
        """What DNS, and the domain itself, say of its route ("" = a bare postmaster: ourselves)."""
        known = self._kept_route(domain)
        if known is not None:
            return known
        if not domain:
            return routing.permanent("5.1.2", "an address without a domain needs a default relay")
        route = routing.literal(domain, self._port) or await self._by_dns(domain)
        if isinstance(route, Destination):
            self._kept[domain] = (self._clock.monotonic() + KEEP_MS, route)
            self._kept.move_to_end(domain)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return route

    async def _by_dns(self, domain: str) -> Route:
        try:
            found = await self._resolver.mx(domain)
            if not found:
                await self._resolver.addresses(domain)
        except NameNotFound as error:
            return routing.permanent("5.1.2", f"no such domain for mail: {error}")
        except ResolveFailed as error:
            return routing.deferral("4.4.3", f"no answer from DNS: {error}")
        return routing.by_mx(domain, found, self._port, self._fallback, self._own_names)
