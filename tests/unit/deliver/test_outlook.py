"""What explain says of a busy server's mail comes true: next host, source, time, and what it waits for.

A thousand recipients in the states that delivery knows are explained at one moment; then time goes on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from mqcd.config.settings import (
    DestinationSettings,
    Rate,
    SenderSettings,
    Source,
    ZoneMatchSettings,
    ZoneSettings,
)
from mqcd.core.events import Verb
from mqcd.core.model import Action, Attempt, Bounced, Deferred, Delivered, Recipient
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.selecting.selection import Selection
from mqcd.deliver.outlook import Blocked
from tests.contract.mail import Post, batch, carry_out
from tests.fakes.clock import FakeClock
from tests.fakes.dialer import SOURCE, Peer
from tests.fakes.observer import Heard
from tests.fakes.resolver import FakeResolver
from tests.unit.deliver.kit import BY_DNS, Kit

SECOND, MINUTE = 1000, 60_000
JITTER = 0.1
SCHEDULE = RetrySchedule(
    delays=(5 * MINUTE, 10 * MINUTE), maxtime=4320 * MINUTE, maxtime_reports=1440 * MINUTE, jitter=JITTER
)
SERVICE_MS = 2000
RECIPIENTS = 1000
Key = tuple[int, int]
BULK = "192.0.2.200"
KINDS = {
    "later": 340,
    "second": 40,
    "dead": 150,
    "rated": 160,
    "bulk": 150,
    "letters": 60,
    "slow": 100,
    "held": 50,
    "removed": 20,
    "gone": 30,
}
"""Recipients by how they fare; `gone` waits for its report."""
WAITS = {
    "later": Blocked.DUE,
    "second": Blocked.DUE,
    "dead": Blocked.SUSPENDED,
    "rated": Blocked.RATE,
    "bulk": Blocked.RATE,
    "letters": Blocked.RATE,
    "slow": Blocked.CONNECTIONS,
    "held": Blocked.HELD,
    "removed": Blocked.REMOVED,
    "gone": Blocked.REPORT,
}
"""What each kind waits for when it is not under way."""
SENDERS = {"bulk": "news@lists.example", "letters": "ann@letters.example"}
SITES = {"later": 10, "dead": 10}
"""Destinations of a kind; others have one."""


RATE = Rate(count=30, per=MINUTE)
SETTINGS = replace(
    BY_DNS,
    destinations=(
        DestinationSettings(match="rated.example", rate=RATE),
        DestinationSettings(match="slow.example", maxserverconnections=2),
    ),
    senders=(SenderSettings(match="letters.example", rate=RATE),),
    zones=(
        ZoneSettings(
            name="bulk",
            sources=(Source(address=BULK),),
            rate=RATE,
            matches=(ZoneMatchSettings(sender=("lists.example",)),),
        ),
    ),
)
REFUSED = "Connection refused"
REPLIES = {
    "later": "450 4.2.1 later",
    "second": "450 4.2.1 later",
    "held": "450 4.2.1 later",
    "removed": "450 4.2.1 later",
    "gone": "550 5.1.1 no such user",
}


def domain_of(kind: str, number: int) -> str:
    return f"{kind}{number if kind in SITES else ''}.example"


class Slow(Peer):
    """Takes its time for each message."""

    clock: FakeClock

    def _replied(self, key: str) -> str:
        self._task = asyncio.ensure_future(self._later(key))
        return "250"

    async def _later(self, key: str) -> None:
        await self.clock.sleep(SERVICE_MS)
        super()._replied(key)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a recipient, or of its destination."""

    blocked_by: Blocked
    at: int = 0
    host: str | None = None
    source: str | None = None


class Town(Kit):
    """The busy server and its next hops."""

    def __init__(self) -> None:
        mx: dict[str, list[tuple[int, str]]] = {}
        addresses: dict[str, list[str]] = {}
        hosts: dict[str, Callable[[], Peer] | str | None] = {}
        names = [(kind, number) for kind in KINDS for number in range(SITES.get(kind, 1))]
        for index, (kind, number) in enumerate(names):
            domain = domain_of(kind, number)
            first, second = f"198.51.100.{2 * index + 1}", f"198.51.100.{2 * index + 2}"
            mx[domain] = [(10, f"mx1.{domain}"), (20, f"mx2.{domain}")]
            addresses |= {f"mx1.{domain}": [first], f"mx2.{domain}": [second]}
            hosts[first] = REFUSED if kind in ("dead", "second") else self.server(kind)
            hosts[second] = REFUSED if kind == "dead" else self.server(kind)
        super().__init__(SETTINGS, hosts, FakeResolver(mx, addresses), SCHEDULE)
        self.mail: dict[tuple[int, int], str] = {}
        """By key, the kind."""

    def server(self, kind: str) -> Callable[[], Peer]:
        if kind == "slow":
            return self.slow
        return partial(Peer, replies={".": REPLIES[kind]} if kind in REPLIES else {})

    def slow(self) -> Peer:
        peer = Slow()
        peer.clock = self.clock
        return peer

    async def fill(self) -> None:
        """All mail comes within some seconds, and has had its first attempts."""
        for kind, count in KINDS.items():
            sender = SENDERS.get(kind, "from@example.org")
            for number in range(count):
                domain = domain_of(kind, number % SITES.get(kind, 1))
                [each] = await self.submit(f"a{number}@{domain}", sender=sender)
                self.mail[each.key] = kind
            await self.clock.run_for(500, turns=40)
        await self.clock.run_for(20 * SECOND, turns=40)
        post = Post(self.store, self.clock)
        for action, kind in ((Action.HOLD, "held"), (Action.REMOVE, "removed")):
            await carry_out(self.store, batch(action, post), Selection(domain=f"{kind}.example"))

    async def said(self) -> dict[tuple[int, int], Seen]:
        """What explain says of each recipient that is in the queue."""
        explainer = self.deliverer.explainer()
        found = [each async for each in self.store.scan(Selection())]
        return {each.key: _said(await explainer.why(self.deliverer.waiting(each))) for each in found}


def _said(explained: Mapping[str, object]) -> Seen:
    ahead = explained["next"]
    assert isinstance(ahead, dict)
    at = datetime.fromisoformat(ahead["at"]).timestamp() * 1000 if ahead["at"] else 0
    return Seen(Blocked(ahead["blocked_by"]), round(at), ahead["host"], ahead["source"])


class Truth:
    """What came of it, from what the observer has heard since the question was asked."""

    def __init__(self, heard: Sequence[Heard], asked: int) -> None:
        self._asked = asked
        self._began: dict[Key, int] = {}
        self._attempts: dict[Key, Attempt] = {}
        self._under_way: set[Key] = set()
        self._dialled: dict[str, Heard] = {}
        """By domain, the first connection."""
        for each in heard:
            self._take(each)

    def _take(self, heard: Heard) -> None:
        if heard.recipient is None:
            if heard.attempt is not None and heard.at > self._asked:
                self._dialled.setdefault(heard.attempt.remote_host.partition(".")[2], heard)
            return
        key, verdict = heard.recipient.key, heard.verdict
        if heard.verb is Verb.ATTEMPTED:
            if heard.at <= self._asked:
                self._under_way.add(key)
            else:
                self._began.setdefault(key, heard.at)
        elif heard.at <= self._asked:
            self._under_way.discard(key)
        elif isinstance(verdict, Delivered | Deferred | Bounced):
            self._attempts.setdefault(key, verdict.attempt)

    def seen(self, kind: str, recipient: Recipient) -> Seen:
        """What was seen of a recipient."""
        key, rule = recipient.key, WAITS[kind]
        if key in self._under_way:
            attempt = self._attempts[key]
            return Seen(Blocked.ATTEMPT, self._asked, attempt.remote_host, attempt.source_addr)
        if rule is Blocked.SUSPENDED:
            heard = self._dialled[recipient.domain]
            assert heard.attempt is not None
            return Seen(rule, heard.at, heard.attempt.remote_host, heard.attempt.source_addr)
        if key not in self._began:
            return Seen(rule)
        attempt = self._attempts[key]
        return Seen(rule, self._began[key], attempt.remote_host, attempt.source_addr)


def wrong(said: Seen, seen: Seen, asked: int) -> list[str]:
    """In what an explanation was wrong."""
    slack = max(SECOND, JITTER * (said.at - asked))
    # Where no zone names a source the system chooses one, for a connection that opens.
    by_system = said.source is None and seen.source in (None, "", SOURCE)
    differs = {
        "rule": said.blocked_by is not seen.blocked_by,
        "host": said.host != seen.host,
        "source": said.source != seen.source and not by_system,
        "time": bool(seen.at) and abs(said.at - seen.at) > slack,
    }
    return [name for name, each in differs.items() if each]


async def test_explanations_of_a_thousand_recipients_come_true() -> None:
    async with Town() as town:
        await town.fill()
        asked = town.clock.now()
        queued = {each.key: each async for each in town.store.scan(Selection())}
        said = await town.said()
        await town.clock.run_for(12 * MINUTE, turns=40)
        truth = Truth(town.observer.heard, asked)
        mistakes = Counter(
            (town.mail[key], *wrong(each, truth.seen(town.mail[key], queued[key]), asked))
            for key, each in said.items()
        )
    assert len(said) >= RECIPIENTS
    assert {each.blocked_by for each in said.values()} >= {*WAITS.values(), Blocked.ATTEMPT}
    right = sum(count for (_, *faults), count in mistakes.items() if not faults)
    assert right >= len(said) * 99 / 100, mistakes
