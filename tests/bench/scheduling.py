"""What one decision of the lane table costs: recipients added and dispatched, nothing else.

    python -m tests.bench.scheduling [--recipients 200000] [--lanes 100]

Prints microseconds of CPU for each recipient from `add` to the end of its transaction: with nothing
configured, with named zones, with rates of lanes, and with rates of senders (all too high to hold back).
"""

from __future__ import annotations

import argparse
import time

from mqcd.config.settings import Rate, TlsPolicy
from mqcd.core.model import Envelope, Recipient
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.deliver.lanes.lane import Bounds
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.routing.policy import Hop, Policy, hop
from mqcd.deliver.routing.routing import Destination

SCHEDULE = RetrySchedule(delays=(900_000,), maxtime=3_600_000, maxtime_reports=3_600_000)
HIGH = Rate(count=1_000_000_000, per=1000)
BATCH = 2000


def hops(lanes: int, zones: int, rate: Rate | None) -> list[Hop]:
    """So many destinations, dealt out to zones ("" alone where there are none)."""
    policies = [
        Policy(
            schedule=SCHEDULE,
            helo="me.example",
            tls=TlsPolicy.MAY,
            connections=20,
            zone=f"zone{number}" if zones else "",
            rate=rate,
        )
        for number in range(max(zones, 1))
    ]
    return [
        hop(Destination(name=f"d{n}", hosts=((f"d{n}",),), port=25), policies[n % len(policies)])
        for n in range(lanes)
    ]


def measure(table: LaneTable, places: list[Hop], recipients: int) -> float:
    """Microseconds of CPU a recipient."""
    envelopes = [Envelope(spid=2 * n + 2, sender="a@example.org", received=0) for n in range(BATCH)]
    batch = [Recipient(envelope=each, size=1, qid=1, address="to@d.example") for each in envelopes]
    entering = table.entering
    began = time.process_time()
    for round_ in range(recipients // BATCH):
        now = round_ * 10
        entering.active += BATCH
        for number, recipient in enumerate(batch):
            place = places[number % len(places)]
            entering.add(recipient, place.destination.name, place, now)
        while started := table.dispatch(now):
            for start in started:
                if not start.reuse:
                    table.opened(start.lane)
                table.went_through(start.lane, now, 5)
                while table.next_job(start.lane, now) is not None:
                    table.went_through(start.lane, now, 5)
                if not table.keep(start.lane):
                    table.closed(start.lane, now, working=True)
        entering.active -= BATCH
    return (time.process_time() - began) / recipients * 1e6


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recipients", type=int, default=200_000)
    parser.add_argument("--lanes", type=int, default=100)
    given = parser.parse_args()
    bounds = Bounds(queuecache=2500, maxconnections=2500, maxrecips=50)
    senders = Bounds(queuecache=2500, maxconnections=2500, maxrecips=50, sender_rates={"example.org": HIGH})
    cases = {
        "nothing configured": (bounds, hops(given.lanes, 0, None)),
        "ten named zones": (bounds, hops(given.lanes, 10, None)),
        "a rate for each lane": (bounds, hops(given.lanes, 0, HIGH)),
        "a rate for the sender": (senders, hops(given.lanes, 0, None)),
    }
    for name, (bound, places) in cases.items():
        print(f"{name:24}{measure(LaneTable(bound), places, given.recipients):6.2f} us", flush=True)


if __name__ == "__main__":
    main()
