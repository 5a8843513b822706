"""The command line; see the package."""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from tests.bench.eventlogs.generate import generate
from tests.bench.eventlogs.world import Plan


def main() -> None:
    """Make a log and tell what it took."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.eventlogs", description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--to", type=Path, required=True, help="a new directory")
    for name in ("nodes", "days", "sites", "senders", "segment"):
        parser.add_argument(f"--{name}", type=int, default=Plan.__dataclass_fields__[name].default)
    parser.add_argument("--processes", type=int, default=0)
    given = vars(parser.parse_args())
    directory, processes = given.pop("to"), given.pop("processes")
    begun = time.monotonic()
    told = generate(Plan(**given), directory, processes=processes)
    wall = time.monotonic() - begun
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    events = sum(node["events"] + sum(node["asides"].values()) for node in told.nodes)
    processor = sum(each.ru_utime + each.ru_stime for each in used)
    peak = max(each.ru_maxrss for each in used) / 1024
    queued = sum(node["queued"] for node in told.nodes)
    print(
        f"{events} events, {queued} recipients queued, {wall:.1f} s, {processor:.1f} s of processor time "
        f"({events / processor:,.0f} events each), {peak:.0f} MB in a process at most"
    )


if __name__ == "__main__":
    main()
