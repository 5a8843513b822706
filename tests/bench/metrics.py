"""What metrics cost: a message on its way through the counters, and one scrape, both in processor time.

    python tests/bench/metrics.py [--destinations 10000] [--messages 200000]

Messages are one recipient each, accepted and delivered at the first attempt, to as many destinations as
said, a tenth of them getting half of the mail. `totals` are the figures without labels, `by label` those
with; rounds of both are interleaved, medians printed. The scrape is of a page over that many destinations,
each with mail in its lane, a tenth with old mail put off: what the server does for it, without sending it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.config.settings import TlsPolicy
from mqcd.core.model import Attempt, Deferred, Delivered, Envelope, Phase, Recipient
from mqcd.core.ports import Observer
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.health import watchdog
from mqcd.deliver.lanes.gauging import gauge
from mqcd.deliver.lanes.lane import Bounds
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.routing.policy import Policy, hop
from mqcd.deliver.routing.routing import Destination
from mqcd.net.clock import SystemClock
from mqcd.ops.metrics.breakdown import Breakdown
from mqcd.ops.metrics.meters import Meters
from mqcd.ops.metrics.metrics import DeliveryFigures, Metrics
from tests.fakes.store import MemoryStore

ROUNDS = 5
SCRAPES = 20
INTERVAL_MS = 15_000
HOUR = 3_600_000

Mail = list[tuple[Recipient, Delivered]]


def make_mail(messages: int, destinations: int, now: int) -> Mail:
    """Mail and its verdicts, ready made."""
    chance = random.Random(1)
    verdicts = [
        Delivered(
            reply=Reply(code=250, status="2.0.0", text="ok"),
            attempt=Attempt(destination=f"mx{number}.example", phase=Phase.DOT, tls="TLSv1.3", attempt_ms=40),
        )
        for number in range(destinations)
    ]
    mail = []
    for number in range(messages):
        few = chance.random() < 0.5
        to = chance.randrange(max(destinations // 10, 1) if few else destinations)
        envelope = Envelope(
            spid=number << 1, sender="s@example.com", received=now, listener="mx", tls="TLSv1.3"
        )
        recipient = Recipient(envelope=envelope, size=4000, qid=1, address=f"a@d{to}.example")
        mail.append((recipient, verdicts[to]))
    return mail


def walk(observer: Observer, mail: Mail, now: int) -> float:
    """Microseconds of processor time a message."""
    begun = time.process_time()
    for recipient, verdict in mail:
        one = [recipient]
        observer.accepted(now, one)
        observer.attempted(now, one, verdict.attempt.destination)
        observer.delivered(now, recipient, verdict)
    return (time.process_time() - begun) / len(mail) * 1e6


def per_message(mail: Mail, now: int) -> None:
    """Print what a message costs."""
    kinds: dict[str, Callable[[], Observer]] = {"totals": Meters, "by label": Breakdown}
    took: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, make in kinds.items():
            took[name].append(walk(make(), mail, now))
    for name, times in took.items():
        print(f"{name}: {statistics.median(times):.2f} us of processor time a message")


def lanes_with_mail(destinations: int, now: int) -> LaneTable:
    """One recipient waits for each destination."""
    table = LaneTable(Bounds(queuecache=destinations * 2, maxconnections=1000, maxrecips=50))
    schedule = RetrySchedule(delays=(HOUR,), maxtime=HOUR, maxtime_reports=HOUR)
    policy = Policy(schedule=schedule, helo="me.example", tls=TlsPolicy.MAY, connections=20)
    for number in range(destinations):
        name = f"mx{number}.example"
        envelope = Envelope(spid=number << 1, sender="", received=now - number)
        recipient = Recipient(envelope=envelope, size=1, qid=1, address=f"a@d{number}.example")
        destination = Destination(name=name, hosts=((name,),), port=25)
        table.entering.add(recipient, f"d{number}.example", hop(destination, policy), now)
    table.dispatch(now)
    return table


def scrape(mail: Mail, destinations: int, now: int) -> None:
    """Print what a page costs."""
    clock, meters, breakdown = SystemClock(), Meters(), Breakdown()
    for observer in (meters, breakdown):
        walk(observer, mail, now)
    busy = Reply(code=451, status="4.3.2", text="busy")
    for recipient, verdict in mail[: destinations // 10]:
        deferred = Deferred(reply=busy, attempt=replace(verdict.attempt, tls=""), due=now + HOUR)
        breakdown.deferred(now, recipient, deferred)
    table = lanes_with_mail(destinations, now)

    def delivery(sites: object) -> DeliveryFigures:
        figures = gauge(table.lanes(), [], breakdown.sites.names)
        stuck = sum(each.recipients for each in watchdog.lanes(table.lanes(), now, HOUR))
        return DeliveryFigures(
            lanes=figures.lanes,
            suspended=table.passing.suspended,
            stuck=stuck,
            connections=figures.connections,
            site_connections=figures.site_connections,
            waiting=figures.waiting,
            oldest=figures.oldest,
        )

    store = MemoryStore(clock, meters)
    metrics = Metrics(clock, meters, store, breakdown=breakdown, delivery=delivery)
    page, _ = metrics.exposition()
    samples = sum(not line.startswith(b"#") for line in page.splitlines())
    begun = time.process_time()
    for _ in range(SCRAPES):
        metrics.exposition()
    ms = (time.process_time() - begun) / SCRAPES * 1000
    print(
        f"one scrape at {destinations} destinations: {ms:.1f} ms of processor time, {samples} samples, "
        f"{len(page) // 1024} KB; {ms / INTERVAL_MS:.2%} of an interval of 15 s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--destinations", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=200_000)
    asked = parser.parse_args()
    now = time.time_ns() // 1_000_000
    for destinations in sorted({10, asked.destinations}):
        print(f"{destinations} destinations, {asked.messages} messages")
        mail = make_mail(asked.messages, destinations, now)
        per_message(mail, now)
        scrape(mail, destinations, now)


if __name__ == "__main__":
    main()
