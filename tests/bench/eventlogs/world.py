"""The made-up Internet: sites, mailboxes, senders, and what is wrong with them and when. Pure, seeded."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from mqcd.deliver.routing.routing import site_name

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
CURVE = (
    22, 16, 12, 10, 10, 14, 30, 60, 100, 120, 125, 118,
    95, 105, 118, 115, 105, 90, 70, 58, 52, 46, 38, 30,
)  # fmt: skip
"""Mail in each hour of a day, relative."""
PER_RECIPIENT = 3.6
"""Events for each recipient, about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is to be made."""

    seed: int
    events: int
    """Transitions, exactly; best-effort events come on top."""
    nodes: int = 3
    days: int = 5
    """How long these take, about."""
    sites: int = 200
    senders: int = 1500
    mailboxes: int = 400
    """Of each domain."""
    begin: int = 1_793_577_600_000
    """Monday, 2026-11-02, UTC."""
    delays: tuple[int, ...] = (15 * MINUTE, 30 * MINUTE, 2 * HOUR, 4 * HOUR)
    """Waits after failed attempts, the last repeats; up to a tenth longer."""
    maxtime: int = 48 * HOUR
    """Age at which a failing recipient is given up."""
    segment: int = 120_000
    """Events of a journal segment that is full."""
    crashes: int = 4
    """Of each node."""
    probes: bool = False
    """Nodes know a dead site, and try one recipient of it, as the server does (docs/scheduling.md)."""

    @property
    def per_minute(self) -> float:
        """Recipients that one node accepts in a minute, on average."""
        return self.events / PER_RECIPIENT / self.nodes / (self.days * 1440)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outage:
    """A time in which a site takes nothing, for any node."""

    begin: int
    end: int
    kind: str
    """Name of the cause that attempts get."""


@dataclass(kw_only=True, slots=True, eq=False)
class Domain:
    """What is behind an @."""

    shown: str
    name: str
    """The same in comparable form."""
    dead: dict[int, int] = field(default_factory=dict)
    """Mailboxes that do not exist, and when they will; 0 = never."""
    full: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Mailboxes that are full from one time to another."""


@dataclass(kw_only=True, slots=True, eq=False)
class Site:
    """MX hosts and the domains that they serve."""

    index: int
    name: str
    hosts: tuple[tuple[str, str], ...]
    """Names and addresses."""
    domains: list[Domain]
    weight: float
    tls: str
    """Version, or "" for a site without TLS."""
    connect_ms: int
    attempt_ms: int
    greylist_ms: int = 0
    """A recipient is taken this long after its first attempt; 0 = at once."""
    rate: int = 0
    """Transactions that it takes of one node in a minute; 0 = any number."""
    connections: int = 0
    """Transactions of one node that it takes at a time; 0 = any number."""
    refusal: float = 0.0
    """Share of mail that is refused by policy."""
    outages: list[Outage] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sender:
    """Who sends, and by which door."""

    address: str
    home: int
    """Index of the site that takes mail for its domain."""
    forged: bool
    """Nobody has this address."""
    text: str
    """What its events say of listener, client and user."""
    tls: str
    size: int
    """Typical, in octets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """All of it. The same plan gives the same world."""

    sites: list[Site]
    senders: list[Sender]


def build(plan: Plan) -> World:
    """The world of a plan."""
    chance = random.Random(f"world {plan.seed}")
    sites = [_site(plan, chance, index) for index in range(plan.sites)]
    total = sum(site.weight for site in sites)
    # The four largest take mail at once: most mail does, and outages of theirs would be all that is seen.
    for site in sites[4:]:
        _habits(plan, chance, site, site.weight / total)
    for site in sites:
        for domain in site.domains:
            _mailboxes(plan, chance, domain)
    return World(sites=sites, senders=[_sender(chance, number) for number in range(plan.senders)])


def _site(plan: Plan, chance: random.Random, index: int) -> Site:
    count = 1 + int(chance.random() ** 3 * 6)
    domains = [Domain(shown=f"d{index}-{n}.example", name=f"d{index}-{n}.example") for n in range(count)]
    if index % 20 == 9:
        shown = f"bücher{index}.example"
        domains.append(Domain(shown=shown, name=shown.encode("idna").decode()))
    owner = domains[0].name
    names = [f"mx{n}.{owner}" for n in range(1, 2 + index % 3)]
    addresses = [f"192.0.{2 + index % 90}.{1 + (index * 7 + n) % 250}" for n in range(len(names))]
    return Site(
        index=index,
        name=site_name(names),
        hosts=tuple(zip(names, addresses, strict=True)),
        domains=domains,
        weight=1.0 / (index + 2),
        tls=chance.choice(("TLSv1.3", "TLSv1.3", "TLSv1.3", "TLSv1.2", "")),
        connect_ms=chance.randrange(3, 120),
        attempt_ms=chance.randrange(30, 900),
    )


def _habits(plan: Plan, chance: random.Random, site: Site, share: float) -> None:
    """What is particular to a site; by its place, so that small worlds have some of each."""
    kind = site.index % 6
    if kind == 0:
        site.greylist_ms = chance.choice((1, 5, 20, 60)) * MINUTE
    elif kind == 1:
        # A little more than the average: reached in the mornings.
        site.rate = max(2, int(plan.per_minute * share * 1.2))
    elif kind == 2:
        site.connections = chance.choice((2, 3, 5))
    elif kind == 3:
        site.refusal = chance.choice((0.02, 0.05, 0.15))
    if site.index % 4 == 1:
        at = plan.begin + chance.randrange(HOUR, max(2 * HOUR, plan.days * DAY - 12 * HOUR))
        length = chance.choice((HOUR // 2, 3 * HOUR, 10 * HOUR, plan.maxtime + 6 * HOUR))
        kinds = ("refused", "timeout", "closed")
        site.outages.append(Outage(begin=at, end=at + length, kind=kinds[site.index // 4 % 3]))


def _mailboxes(plan: Plan, chance: random.Random, domain: Domain) -> None:
    span = plan.days * DAY
    for box in range(plan.mailboxes):
        luck = chance.random()
        if luck < 0.03:
            # One in six comes to be (again).
            domain.dead[box] = plan.begin + chance.randrange(span) if luck < 0.005 else 0
        elif luck < 0.05:
            at = plan.begin + chance.randrange(span)
            domain.full[box] = at, at + chance.randrange(HOUR, 60 * HOUR)


def _sender(chance: random.Random, number: int) -> Sender:
    forged = number % 20 == 7
    listener = ("submission", "relay", "inside")[number % 3]
    text = f',"listener":"{listener}","client":"198.51.100.{1 + number % 250}"'
    if listener == "submission":
        text += f',"user":"u{number}@home{number % 4}.example"'
    home = number % 4
    local = f"bounce+{number}=x" if forged else f"user{chance.randrange(300)}.{number}"
    return Sender(
        address=f"{local}@d{home}-0.example",
        home=home,
        forged=forged,
        text=text,
        tls="" if listener == "inside" else "TLSv1.3",
        size=int(chance.lognormvariate(9.5, 1.2)),
    )
