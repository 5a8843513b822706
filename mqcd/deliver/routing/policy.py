"""Policies for mail to a destination: zones, settings of destinations, defaults. Pure.

A zone is a named way out (source addresses, HELO name, limits). A recipient's zone is the first one in the
file's order of which a match fits; a match fits where all fits that it names. A zone chosen by a header is
found once, at the door, and stored in the envelope; everything else is matched here, so that a changed file
also applies to waiting mail.

What a `destination` element says goes before what the zone says, and that before the settings for all
mail; of several elements that fit, one that names the recipient's domain goes before one that names MX
hosts, an exact name before a pattern, and then the first in the file. Advice, of which one piece is found in
the same way, says what no destination element says. Limits hold for each zone and lane by
itself: each zone has addresses of its own, and is judged by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from mqcd.config.advice import Shaping
from mqcd.config.settings import (
    AuthSettings,
    ClientSettings,
    DeliverSettings,
    DestinationSettings,
    Rate,
    Source,
    SslSettings,
    TlsPolicy,
    ZoneMatchSettings,
    ZoneSettings,
)
from mqcd.core.address import fits_name
from mqcd.core.model import Envelope
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.selecting.rules import StandingRule
from mqcd.core.value import value
from mqcd.deliver.routing.conditions import Mail, tested
from mqcd.deliver.routing.routing import Destination
from mqcd.deliver.routing.zones import conditions, taken_by
from mqcd.deliver.smtp.auth import Login

MOST_SLOWED = 10_000
"""Policies of slowed mail that are kept."""


@value
class Policy:
    """The policy of one lane, complete before any attempt."""

    schedule: RetrySchedule
    helo: str
    tls: TlsPolicy
    tls_chosen: bool = False
    """A zone, a destination element or the relay chose it: what holds for networks does not change it."""
    implicit_tls: bool = False
    """The connection begins with TLS."""
    checked: bool = False
    """Where there is TLS the certificate must be valid, for any value of `tls`."""
    lmtp: bool = False
    login: Login | None = None
    """The credentials for the next hop."""
    certificate: str = ""
    """File of the client certificate; "" = none."""
    key: str = ""
    """File of its key; "" = it stands with the certificate."""
    connections: int
    """Connections at once, at most."""
    shared: int = 0
    """Where shards share fewer connections than there are shards: how many; 0 = `connections` is its own."""
    zone: str = ""
    """Name of the zone; "" is mail that no zone takes."""
    sources: tuple[Source, ...] = ()
    """Source addresses; none = the system's choice."""
    rate: Rate | None = None
    """How many recipients may be tried in a time."""
    probe_interval: int = 0
    """Time until the first probe of a dead destination, ms; 0 = the table's own."""
    entry: str = ""
    """The `match` of the destination element that had a say; "" = none had."""
    advice: str = ""
    """The id of the piece of advice that had a say; "" = none had."""
    rule: str = ""
    """The id of the standing rule that slows it down; "" = none does."""


@value(kw_only=False)
class Hop:
    """A destination and its policy: the subject of one lane."""

    destination: Destination
    policy: Policy
    key: str
    """The name of the lane. Mail of another zone, another element or a rule has lanes of its own."""
    sole: bool = True
    """All mail for the domain that it was found for goes this way, from any sender."""
    generation: int = 0
    """Of the settings that it was found by: how often they had changed."""

    def fits(self, other: Hop) -> bool:
        """Whether its mail may go with that of the other one, in a transaction and over a connection.

        A stranger's MX records name his lane: that it has the name of another's is not enough.
        """
        if self.policy is not other.policy and self.policy != other.policy:
            return False
        return self.destination.shares_hosts(other.destination)


def hop(destination: Destination, policy: Policy, sole: bool = True, generation: int = 0) -> Hop:
    """The hop that a policy makes of a destination."""
    entry = f"/{policy.entry}" if policy.entry else ""
    zone = f" via {policy.zone}" if policy.zone else ""
    rule = f" by {policy.rule}" if policy.rule else ""
    return Hop(destination, policy, f"{destination.name}{entry}{zone}{rule}", sole, generation)


_STRICTNESS = tuple(TlsPolicy)
"""From the laxest policy to the strictest."""


def _to_relay(policy: Policy, relay: Destination) -> Policy:
    """A policy with the relay's own settings applied. Of two policies for TLS the stricter one counts."""
    ssl, login = relay.ssl, relay.auth
    wanted = _wanted(ssl, login)
    return replace(
        policy,
        tls=max(policy.tls, wanted, key=_STRICTNESS.index),
        tls_chosen=policy.tls_chosen or wanted is not TlsPolicy.NONE,
        implicit_tls=ssl.latent is False,
        checked=login.enabled and ssl.verify is not False,
        lmtp=relay.lmtp,
        login=_login(login) if login.enabled else None,
        certificate=str(ssl.certfile or ""),
        key=str(ssl.keyfile or ""),
    )


def _wanted(ssl: SslSettings, login: AuthSettings) -> TlsPolicy:
    """What a relay's own settings ask of its TLS. A login goes to the relay's certificate only: what it goes
    without, `verify` N or `cleartext` says."""
    secret = login.enabled and not login.cleartext
    if ssl.verify or (secret and ssl.verify is None):
        return TlsPolicy.VERIFY
    if secret or ssl.mandatory or ssl.latent is False:
        return TlsPolicy.ENCRYPT
    return TlsPolicy.NONE if ssl.latent is None else TlsPolicy.MAY


def _login(settings: AuthSettings) -> Login:
    return Login(
        username=settings.username,
        password=settings.password.text,
        mechanism=settings.override.value.upper().replace("_", "-") if settings.override else "",
        initial_response=settings.initrsp,
        cleartext=settings.cleartext,
    )


def sources_for(sources: Sequence[Source], address: str, turn: int) -> list[str]:
    """The own addresses to connect from to `address`, the others for when one cannot be used: those of its
    family lead in turns, by weight.

    "" is the system's choice; nothing: the zone has addresses, but none of this family.
    """
    if not sources:
        return [""]
    family = [each for each in sources if (":" in each.address) == (":" in address)]
    place = turn % max(sum(each.weight for each in family), 1)
    lead = 0
    while family and (place := place - family[lead].weight) >= 0:
        lead += 1
    return [each.address for each in (*family[lead:], *family[:lead])]


class Policies:
    """All rules of one configuration."""

    def __init__(
        self,
        settings: DeliverSettings,
        schedule: RetrySchedule,
        shapings: Sequence[Shaping] = (),
        processes: int = 1,
    ) -> None:
        """`shapings`: advice, which counts where no destination element says otherwise. `processes`: of all
        shards, among which connections are divided."""
        self._processes = processes
        self._shapings = shapings
        self._zones = settings.zones
        self.zones = conditions(settings.zones)
        """By name the condition on the mail of each zone."""
        self._taken = [(zone.name, tested(taken_by(zone))) for zone in settings.zones]
        self._destinations = settings.destinations
        client = settings.client
        base = Policy(
            schedule=schedule,
            helo=client.announcehost or "localhost",
            tls=tls_of(client),
            connections=settings.maxserverconnections,
        )
        self._by_zone = {"": base} | {zone.name: _zoned(base, zone) for zone in settings.zones}
        self._made: dict[tuple[str, str, str, str], Policy] = {}
        self._slowed: dict[tuple[str, int], tuple[Policy, Policy]] = {}

    def zone_of(self, envelope: Envelope, domain: str) -> str:
        """The name of the zone that takes a recipient of `domain` (in comparable form); "" = none."""
        mail = Mail(envelope, domain)
        return next((name for name, takes in self._taken if takes(mail)), "")

    def one_zone(self, domain: str) -> bool:
        """Whether all mail for a domain goes by the same zone, from any sender and client."""
        for zone in self._zones:
            matches = [each for each in zone.matches if _fits_domain(each, domain)]
            if any(not (each.header or each.listener or each.user or each.sender) for each in matches):
                return True
            if matches:
                return False
        return True

    def policy(
        self, zone: str, domain: str, hosts: Sequence[str], relay: Destination | None = None
    ) -> Policy:
        """The policy for mail of a zone to a domain that these hosts serve, all in comparable form; `relay`
        are they where they were configured.

        The same object for all domains that are treated alike: their mail travels together.
        """
        found = _entry(self._destinations, domain, hosts)
        advised = _entry(self._shapings, domain, hosts)
        advice, name = advised.id if advised else "", relay.name if relay else ""
        key = zone, found.match if found else "", advice, name
        made = self._made.get(key)
        if made is None:
            policy = self._by_zone[zone]
            if advised:
                policy = _advised(policy, advised)
            policy = _narrowed(policy, found) if found else policy
            policy = _to_relay(policy, relay) if relay else policy
            made = self._made[key] = _divided(policy, self._processes)
        return made

    def slowed(self, policy: Policy, rule: StandingRule) -> Policy:
        """A policy of these with a rule's limits, which only lower its own; the same object each time."""
        kept = self._slowed.get((rule.id, id(policy)))
        if kept is not None and kept[0] is policy:
            return kept[1]
        limited = policy
        if rule.connections:
            least = _divided(replace(policy, connections=rule.connections, shared=0), self._processes)
            if not 0 < self._together(policy) <= self._together(least):
                limited = least
        rates = [rate for rate in (policy.rate, _rate(rule)) if rate]
        lowest = min(rates, key=lambda rate: rate.count / rate.per, default=None)
        made = replace(limited, rate=lowest, rule=rule.id)
        if len(self._slowed) > MOST_SLOWED:
            self._slowed.clear()
        self._slowed[rule.id, id(policy)] = policy, made
        return made

    def _together(self, policy: Policy) -> int:
        """The connections of all processes at once; 0 = no limit."""
        return policy.shared or policy.connections * self._processes


def _rate(rule: StandingRule) -> Rate | None:
    return Rate(count=rule.rate[0], per=rule.rate[1]) if rule.rate else None


def tls_of(client: ClientSettings) -> TlsPolicy:
    """The policy that the client's settings make."""
    if client.tls_mandatory:
        return TlsPolicy.ENCRYPT
    return TlsPolicy.MAY if client.anonssl else TlsPolicy.NONE


def _zoned(base: Policy, zone: ZoneSettings) -> Policy:
    return replace(
        base,
        zone=zone.name,
        sources=zone.sources,
        helo=zone.helo or base.helo,
        connections=zone.maxserverconnections or base.connections,
        schedule=_with_delays(base.schedule, zone.retry_delays),
        tls=zone.tls or base.tls,
        tls_chosen=zone.tls is not None,
    )


def _narrowed(policy: Policy, entry: DestinationSettings) -> Policy:
    return replace(
        policy,
        entry=entry.match,
        rate=entry.rate or policy.rate,
        connections=entry.maxserverconnections or policy.connections,
        schedule=_with_delays(policy.schedule, entry.retry_delays),
        tls=entry.tls or policy.tls,
        tls_chosen=policy.tls_chosen or entry.tls is not None,
        probe_interval=entry.probe_interval or 0,
    )


def _advised(policy: Policy, shaping: Shaping) -> Policy:
    """Advice only lowers limits: it never opens more connections than the operator allows."""
    connections = shaping.maxserverconnections or policy.connections
    return replace(
        policy,
        advice=shaping.id,
        rate=shaping.rate,
        connections=min(connections, policy.connections) if policy.connections else connections,
        schedule=_with_delays(policy.schedule, shaping.retry_delays),
    )


def _divided(policy: Policy, processes: int) -> Policy:
    """One process's part of a policy."""
    if processes == 1:
        return policy
    most = policy.connections
    return replace(
        policy,
        connections=max(most // processes, 1) if most else 0,
        shared=most if most < processes else 0,
    )


def _with_delays(schedule: RetrySchedule, delays: tuple[int, ...]) -> RetrySchedule:
    return replace(schedule, delays=delays) if delays else schedule


def _fits_domain(match: ZoneMatchSettings, domain: str) -> bool:
    return not match.domain or any(fits_name(each, domain) for each in match.domain)


_Entry = TypeVar("_Entry", DestinationSettings, Shaping)


def _entry(entries: Sequence[_Entry], domain: str, hosts: Sequence[str]) -> _Entry | None:
    """The matching element with the highest precedence."""
    best: _Entry | None = None
    rank = 0
    for entry in entries:
        exact = not entry.match.startswith("*")
        if fits_name(entry.match, domain):
            here = 4 if exact else 3
        elif any(fits_name(entry.match, host) for host in hosts):
            here = 2 if exact else 1
        else:
            continue
        if here > rank:
            best, rank = entry, here
    return best
