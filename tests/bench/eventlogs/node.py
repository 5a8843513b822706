"""One node's life: mail comes, is tried, waits, ends; now and then the server is killed.

Everything happens in the order of time, by a heap of what is to come: an attempt that is due or one that
ends. Arrivals follow the curve of a day. What an attempt meets is decided by the world alone.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect
from itertools import accumulate

from mqcd.core.queueing.spid import EPOCH_MS
from tests.bench.eventlogs.causes import (
    CONNECTIONS,
    DEAD,
    FULL,
    GREYLISTED,
    LOST,
    OUTAGES,
    POLICY,
    RATE,
    REFUSED,
    SENT,
    Cause,
    End,
)
from tests.bench.eventlogs.truth import Truth
from tests.bench.eventlogs.world import CURVE, HOUR, MINUTE, Domain, Plan, Sender, Site, World
from tests.bench.eventlogs.writing import EventWriter

_MEAN = sum(CURVE) / len(CURVE)
_NIGHT = 5
"""Until this hour a segment grows old before it is full."""
_LOST = 0.0005
"""Share of connections that break after the final dot."""
_DOWN_MS = 4_000
"""From a kill to the first word of the next server."""
_COUNTERS = 1 << 14
_PROBE_MS = 60_000
"""From the failure that shows a site to be dead to its first probe."""
_GRACE_MS = 1_000
"""How long after a probe has begun the others of its site come back."""
_AT_ONCE = 5
"""Attempts at a site at a time, where nodes know of dead ones."""
_HURTS = 3
"""A kill waits for so many transactions to be under way: else it would mostly hide nothing."""


class Mail:
    """One recipient of one message, and what is known of it."""

    __slots__ = (
        "attempts", "begun", "box", "cause", "deferrals", "domain", "doubts", "forged", "home", "last", "qid",
        "received", "recipient", "sender", "site", "size", "spid", "taken", "text", "tls", "tried",
        "unknowns", "untried", "verdict",
    )  # fmt: skip

    def __init__(self, spid: str, qid: int, received: int, site: Site, domain: Domain, box: int) -> None:
        self.spid, self.qid, self.received = spid, qid, received
        self.site, self.domain, self.box = site, domain, box
        self.sender = self.text = self.tls = self.recipient = ""
        self.size = 0
        self.home = 0
        """Site of the sender's domain."""
        self.forged = False
        """Whether the sender's address does not exist."""
        self.attempts = self.deferrals = self.unknowns = self.doubts = 0
        self.begun = self.tried = 0
        """Times of the first `attempted` and of the first attempt; 0 = not yet."""
        self.taken = 0
        """How often the site took it, whether we know or not."""
        self.cause: Cause | None = None
        """How the attempt under way will end."""
        self.verdict = 0, 0
        """Its times to connect and in all."""
        self.untried = False
        """Whether it is given up by the failure of another."""
        self.last = ""


class Dead:
    """A site of which a node knows that nobody is there."""

    __slots__ = ("delay", "probing", "until")

    def __init__(self) -> None:
        self.until = self.delay = 0
        """When it may be probed, and after how long."""
        self.probing = False


class Node:
    """One server."""

    def __init__(self, plan: Plan, world: World, number: int, writer: EventWriter, truth: Truth) -> None:
        self._plan, self._world, self._number = plan, world, number
        self._writer, self._truth = writer, truth
        self._chance = random.Random(f"node {plan.seed} {number}")
        self._coming = random.Random(f"mail {plan.seed} {number}")
        """By itself: plans that differ in what the server does have the same mail."""
        self._ip = f"203.0.113.{10 + number}"
        self._heap: list[tuple[int, int, Mail]] = []
        self._count = self._messages = 0
        self._active = [0] * len(world.sites)
        """Attempts under way, by site."""
        self._under_way = 0
        """Those of them that had an `attempted`."""
        self._suspended: dict[int, Dead] = {}
        """By site."""
        self._minutes: dict[int, tuple[int, int]] = {}
        """For sites with a rate: the minute, and the transactions in it."""
        self._weights = list(accumulate(site.weight for site in world.sites))
        self._routes: dict[tuple[int, str], str] = {}
        self._gap = MINUTE * 1.9 / plan.per_minute
        """Mean time between messages, of 1.9 recipients on average."""
        self._now = plan.begin
        self._crashes = sorted(
            plan.begin + int(self._chance.uniform(0.1, 0.9) * plan.days * 24 * HOUR)
            for _ in range(plan.crashes)
        )
        self._sealed = plan.begin // HOUR
        truth.turn(plan.begin)

    def run(self, events: int) -> None:
        """Until so many transitions have happened; then the log ends, with what is under way."""
        writer, heap, chance = self._writer, self._heap, self._coming
        arrival = float(self._now)
        while writer.sequence < events:
            at = min(int(arrival), heap[0][0] if heap else int(arrival))
            if self._crashes and at >= self._crashes[0] and self._under_way >= _HURTS:
                arrival = max(arrival, self._crash(self._crashes.pop(0)))
                continue
            self._now = at = max(at, self._now)
            if at // HOUR != self._sealed:
                self._new_hour(at)
            if not heap or arrival < heap[0][0]:
                self._arrive(at)
                rate = CURVE[at // HOUR % 24] / _MEAN
                arrival += chance.expovariate(1.0) * self._gap / rate
            else:
                mail = heapq.heappop(heap)[2]
                if mail.cause is None:
                    self._start(mail, at)
                else:
                    self._settle(mail, at, mail.cause)
        self._finish()

    def _finish(self) -> None:
        for _, _, mail in sorted(self._heap, key=lambda each: (each[2].spid, each[2].qid)):
            self._truth.left(mail)
        self._writer.seal()
        self._writer.seal_asides(self._now)
        self._truth.close(self._writer.sequence, self._now)

    def _new_hour(self, at: int) -> None:
        self._sealed = at // HOUR
        self._truth.turn(at)
        self._writer.seal_asides(at)
        if self._sealed % 24 <= _NIGHT:
            self._writer.seal()

    def _push(self, at: int, mail: Mail) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, mail))

    # ------------------------------------------------------------ in

    def _arrive(self, at: int) -> None:
        chance = self._coming
        sender = self._world.senders[int(chance.random() ** 2 * len(self._world.senders))]
        luck = chance.random()
        count = 1 if luck < 0.85 else 2 + int(luck * 1000) % 5 if luck < 0.97 else 8 + int(luck * 1000) % 20
        spid = self._spid(at, count > 1)
        size = max(400, int(sender.size * (0.5 + chance.random())))
        site = self._site()
        for qid in range(1, count + 1):
            # A list is mostly of people who know each other.
            site = site if chance.random() < 0.8 else self._site()
            domain = site.domains[int(chance.random() * len(site.domains))]
            box = int(chance.random() * self._plan.mailboxes)
            mail = Mail(spid, qid, at, site, domain, box)
            mail.sender, mail.size, mail.tls = sender.address, size, sender.tls
            mail.home, mail.forged = sender.home, sender.forged
            self._accept(mail, f"user{box}@{domain.shown}", count, "smtp", sender)
            self._push(at + 2 + int(chance.random() * 20), mail)
        if luck < 0.02:
            self._refuse(at, sender)

    def _site(self) -> Site:
        luck = self._coming.random() * self._weights[-1]
        return self._world.sites[bisect(self._weights, luck)]

    def _spid(self, at: int, several: bool) -> str:
        # Nodes have counters of their own, so that no two messages of all have one name.
        self._messages += 1
        counter = (self._messages * 8 + self._number) % _COUNTERS
        return f"{(at - EPOCH_MS) << 23 | counter << 1 | several:016X}"

    def _accept(self, mail: Mail, recipient: str, count: int, origin: str, sender: Sender | None) -> None:
        mail.recipient = recipient
        mail.text = (
            f',"spid":"{mail.spid}","qid":{mail.qid},"sender":"{mail.sender}","recipient":"{recipient}",'
            f'"domain":"{mail.domain.name}","size":{mail.size},"origin":"{origin}"'
            f"{sender.text if sender else ''}"
        )
        tls = f',"tls":"{mail.tls}"' if mail.tls else ""
        self._writer.add("accepted", mail.received, f'{mail.text}{tls},"recipients":{count}')
        self._truth.accepted(mail)

    def _refuse(self, at: int, sender: Sender) -> None:
        client = sender.text.partition(',"user"')[0]
        self._writer.aside(
            "refused", at, f',"sender":"{sender.address}"{client},"code":550,'
            '"status":"5.7.1","class":"policy","reply":"relaying denied","reason":"relay"'
        )  # fmt: skip
        self._truth.asides["refused"] += 1

    # ------------------------------------------------------------ out

    def _start(self, mail: Mail, at: int) -> None:
        site, chance = mail.site, self._chance
        if self._plan.probes and self._waits(mail, at):
            return
        mail.attempts += 1
        mail.tried = mail.tried or at
        cause = mail.cause = self._meets(mail, site, at)
        connect = int(site.connect_ms * (0.7 + 0.6 * chance.random())) if self._active[site.index] == 0 else 0
        takes = int(site.attempt_ms * (0.6 + chance.random()))
        if chance.random() < 0.01:
            takes *= 20
        if cause.waits_ms:
            connect, takes = connect, cause.waits_ms
        elif not cause.begins:
            takes = 0
        if cause.begins:
            self._under_way += 1
            mail.begun = mail.begun or at
            self._writer.add(
                "attempted", at,
                f',"spid":"{mail.spid}","qid":{mail.qid},"attempt":{mail.attempts},'
                f'"destination":"{site.name}","site":"{site.name}"',
            )  # fmt: skip
        elif cause.phase == "connect":
            self._aside_failure(mail, at)
        self._active[site.index] += 1
        mail.verdict = connect, takes
        self._push(at + connect + takes, mail)

    def _waits(self, mail: Mail, at: int) -> bool:
        """Whether it is not tried now: its site has enough, or is dead and not to be probed yet; else it is
        the probe."""
        dead = self._suspended.get(mail.site.index)
        if dead is None:
            if enough := self._active[mail.site.index] >= _AT_ONCE:
                self._push(at + _GRACE_MS, mail)
            return enough
        if at >= dead.until and not dead.probing:
            dead.probing = True
            return False
        limit = mail.received + self._plan.maxtime
        if at >= limit:
            mail.attempts += 1
            mail.cause, mail.untried, mail.verdict = REFUSED, True, (0, 0)
            self._active[mail.site.index] += 1
            self._push(at, mail)
        else:
            self._push(min(max(dead.until, at) + _GRACE_MS, limit), mail)
        return True

    def _hear(self, mail: Mail, cause: Cause, at: int) -> None:
        """An attempt has ended: is the site there?"""
        index = mail.site.index
        if cause.name not in OUTAGES:
            self._suspended.pop(index, None)
        elif not mail.untried:
            dead = self._suspended.setdefault(index, Dead())
            if at >= dead.until:
                dead.delay = min(dead.delay * 2 or _PROBE_MS, self._plan.delays[0])
                dead.until, dead.probing = at + dead.delay, False

    def _aside_failure(self, mail: Mail, at: int) -> None:
        site = mail.site
        host, address = site.hosts[mail.box % len(site.hosts)]
        self._writer.aside(
            "connect-failed", at, f',"destination":"{site.name}","site":"{site.name}","remote_host":"{host}",'
            f'"remote_addr":"{address}","source_addr":"{self._ip}","reason":"refused"'
        )  # fmt: skip
        self._truth.asides["connect-failed"] += 1

    def _meets(self, mail: Mail, site: Site, at: int) -> Cause:
        """What the world has for an attempt."""
        for outage in site.outages:
            if outage.begin <= at < outage.end:
                return OUTAGES[outage.kind]
        if site.connections and self._active[site.index] >= site.connections:
            return CONNECTIONS
        if site.rate and self._is_over(site, at):
            return RATE
        if site.greylist_ms and at - mail.tried < site.greylist_ms:
            return GREYLISTED
        if mail.box in mail.domain.dead and not 0 < mail.domain.dead[mail.box] <= at:
            return DEAD
        full = mail.domain.full.get(mail.box)
        if full and full[0] <= at < full[1]:
            return FULL
        luck = self._chance.random()
        if luck < _LOST:
            return LOST
        return POLICY if luck < _LOST + site.refusal else SENT

    def _is_over(self, site: Site, at: int) -> bool:
        """Count a transaction of this minute; whether it is one too many."""
        minute, count = self._minutes.get(site.index, (0, 0))
        now = at // MINUTE
        count = count + 1 if now == minute else 1
        self._minutes[site.index] = now, count
        return count > site.rate

    def _settle(self, mail: Mail, at: int, cause: Cause) -> None:
        self._active[mail.site.index] -= 1
        self._under_way -= cause.begins
        mail.cause, mail.last = None, cause.name
        if self._plan.probes:
            self._hear(mail, cause, at)
        if cause is SENT or (cause is LOST and self._chance.random() < 0.5):
            mail.taken += 1
        end = cause.end
        if end is End.DEFERRED and at - mail.received >= self._plan.maxtime:
            end = End.EXPIRED
        tls = bool(mail.site.tls) and cause.begins
        due = at + self._wait(mail.attempts) if end is End.DEFERRED else 0
        if due and cause.name in OUTAGES and (dead := self._suspended.get(mail.site.index)):
            due = min(due, max(dead.until, at) + 2 * _GRACE_MS)
        self._writer.add(end.value, at, self._told(mail, cause, at, due))
        self._truth.verdict(mail, cause, end, at, tls=tls)
        if due:
            mail.deferrals += 1
            mail.doubts += cause.doubt
            self._push(due, mail)
            return
        self._truth.ended(mail, end, cause, at)
        if end is not End.DELIVERED and mail.sender:
            self._report(mail, at)

    def _wait(self, attempts: int) -> int:
        delays = self._plan.delays
        return int(delays[min(attempts, len(delays)) - 1] * (1 + self._chance.random() / 10))

    def _told(self, mail: Mail, cause: Cause, at: int, due: int) -> str:
        """The fields of a verdict."""
        site = mail.site
        host, address = site.hosts[mail.box % len(site.hosts)]
        route = self._routes.get((site.index, cause.phase + host))
        if route is None:
            tls = f',"tls":"{site.tls}"' if site.tls and cause.begins else ""
            route = self._routes[site.index, cause.phase + host] = (
                f',"destination":"{site.name}","site":"{site.name}","phase":"{cause.phase}",'
                f'"remote_host":"{host}","remote_addr":"{address}","source_addr":"{self._ip}"{tls}'
            )
        if mail.untried:
            route = f',"destination":"{site.name}","site":"{site.name}","phase":"{cause.phase}"'
        texts = cause.texts
        reply = texts[site.index % len(texts)] % {
            "id": f"{mail.spid[6:13]}{mail.attempts:X}", "to": mail.recipient, "ip": self._ip, "host": host,
            "addr": address,
        }  # fmt: skip
        rest = f',"due":"{self._writer.time(due)}"' if due else ""
        if due and cause.doubt:
            rest += ',"possibly_delivered":true'
        connect, takes = mail.verdict
        return (
            f'{mail.text},"queued_ms":{at - mail.received},"attempt":{mail.attempts}{route},'
            f'"code":{cause.code},"status":"{cause.status}","class":"{cause.kind}","reply":"{reply}","connect_ms":{connect},'
            f'"attempt_ms":{takes}{rest}'
        )

    def _report(self, mail: Mail, at: int) -> None:
        """Tell the sender, who may not exist."""
        site = self._world.sites[mail.home]
        spid = self._spid(at, False)
        # Senders' own boxes are beyond those of strangers, so they are never full.
        box = -2 if mail.forged else -1
        report = Mail(spid, 1, at, site, site.domains[0], box)
        report.size = 3000 + min(mail.size, 20_000)
        if mail.forged:
            report.domain.dead[box] = 0
        self._accept(report, mail.sender, 1, "report", None)
        queued = f',"queued_ms":{at - mail.received}'
        self._writer.add("reported", at, f'{mail.text}{queued},"report":"{spid}"')
        self._push(at + 2 + int(self._chance.random() * 20), report)

    # ------------------------------------------------------------ kills

    def _crash(self, at: int) -> int:
        """Kill the server; gives when it is back. What was under way is unknown; some of it has arrived."""
        back = max(at, self._now) + _DOWN_MS
        self._writer.seal()
        self._now = back
        self._truth.turn(back)
        waiting = sorted(self._heap)
        self._heap.clear()
        self._active = [0] * len(self._active)
        self._suspended.clear()
        self._under_way = 0
        for due, _, mail in waiting:
            cause, mail.cause = mail.cause, None
            if cause is None:
                self._push(max(due, back), mail)
            elif not cause.begins:
                # Nothing was written of it.
                mail.attempts -= 1
                self._push(back, mail)
            else:
                self._unknown(mail, cause, back)
        return back

    def _unknown(self, mail: Mail, cause: Cause, at: int) -> None:
        mail.unknowns += 1
        mail.last = "unknown"
        if cause is SENT and self._chance.random() < 0.5:
            mail.taken += 1
        due = at + self._wait(mail.attempts)
        tls = f',"tls":"{mail.tls}"' if mail.tls else ""
        self._writer.add(
            "outcome-unknown", at,
            f'{mail.text}{tls},"queued_ms":{at - mail.received},"attempt":{mail.attempts},'
            f'"due":"{self._writer.time(due)}"',
        )  # fmt: skip
        self._push(due, mail)
