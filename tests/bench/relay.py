"""How fast mqcd and Postfix relay the same load, with one source and one sink.

    python tests/bench/relay.py [small|list|medium|large|many ...] [--rounds 3] [--share 1.0] [--shards 1]

* small: 5000 messages of 4 KB over 20 sessions, with a connection for each message and with kept ones
* list: one message to 10,000 recipients of one destination; recipients a second
* medium: 2000 messages of 100 KB and 400 of 1 MB over 20 kept sessions; MB a second
* large: 200 messages of 5 MB over 20 sessions; MB a second
* many: 5000 messages of 4 KB over 20 kept sessions to 100 destinations, in turn

Needs root and Debian's `postfix` (its smtp-source and smtp-sink too). Both servers run from directories
of their own on loopback, in turn, in each round; medians are printed. "accepted" ends when the source
has its last 250, "end to end" when the sink has counted the last message. "cpu_us" is the processor time
that all processes of the server took for a unit, microseconds: other work on the machine disturbs it least,
but below some thousand messages the helper's first filling of journal slots stands out. `many` has a source
of its own, since smtp-source knows one recipient domain only. `--share` makes less of each load. Memory is
the largest entry size of mqcd's server and its helper. Refuses tmpfs, where a sync costs nothing.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import kit, servers, traffic

_MANY = {f"d{number}.example": f"127.0.3.{number}" for number in range(1, 101)}
_IN_ONE = 50
"""Recipients that both servers put into one transaction, by default."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is sent, and what of it is counted."""

    messages: int
    octets: int = 4096
    recipients: int = 1
    """Of each message."""
    sessions: int = 20
    options: tuple[str, ...] = ("-d",)
    """Of smtp-source."""
    own_source: bool = False
    unit: str = "messages"
    per_message: float = 1
    """Units."""

    @property
    def arriving(self) -> int:
        """Messages that the sink counts."""
        return self.messages * -(-self.recipients // _IN_ONE)


def loads(share: float) -> Mapping[str, dict[str, Load]]:
    """By word of the command line, and name: the loads."""

    def some(count: int) -> int:
        return max(int(count * share), 1)

    def big(count: int, octets: int) -> Load:
        return Load(messages=some(count), octets=octets, unit="MB", per_message=octets / 1e6)

    names = some(10_000)
    return {
        "small": {
            "4 KB, a connection each": Load(messages=some(5000), options=()),
            "4 KB, kept connections": Load(messages=some(5000)),
        },
        "list": {
            "one message, many recipients": Load(
                messages=1, recipients=names, sessions=1, unit="recipients", per_message=names
            )
        },
        "medium": {"100 KB": big(2000, 100 << 10), "1 MB": big(400, 1 << 20)},
        "large": {"5 MB": big(200, 5 << 20)},
        "many": {"4 KB, 100 destinations": Load(messages=some(5000), own_source=True)},
    }


def send(port: int, load: Load) -> None:
    """Send all of it; return at the last 250."""
    if load.own_source:
        domains = zip(range(load.messages), itertools.cycle(_MANY))
        mails = [traffic.Mail((f"user{number}@{domain}",), load.octets) for number, domain in domains]
        kit.run(traffic.send(port, mails, load.sessions))
        return
    sizes = ["-s", str(load.sessions), "-l", str(load.octets), "-m", str(load.messages)]
    names = ["-r", str(load.recipients)] if load.recipients > 1 else []
    ends = ["-f", "sender@example.org", "-t", "recipient@example.com", f"127.0.0.1:{port}"]
    subprocess.run(["smtp-source", *sizes, *names, *load.options, *ends], check=True)


def measure(server: servers.Server, sink: servers.Sink, load: Load) -> dict[str, float]:
    """One run of the source."""
    before, spent = sink.messages(), server.spent()
    start = time.monotonic()
    send(server.port, load)
    accepted = time.monotonic() - start
    servers.until(lambda: sink.messages() - before >= load.arriving, f"{load.arriving} messages at the sink")
    total = time.monotonic() - start
    units = load.messages * load.per_message
    peaks = [peak / 1e6 for peak in server.peaks()]
    memory = {"server_mb": peaks[0], "helper_mb": sum(peaks[1:])} if peaks else {}
    took = [(after - earlier) * 1e6 / units for earlier, after in zip(spent, server.spent(), strict=False)]
    times = {"cpu_us": sum(took)} | ({"of_it_helper_us": sum(took[1:])} if took[1:] else {})
    return {"accepted": units / accepted, "end_to_end": units / total, **times, **memory}


Starts = Mapping[str, Callable[..., servers.Running]]


def compare(base: Path, load: Load, rounds: int, starts: Starts) -> dict[str, list[dict[str, float]]]:
    """By server: what each round gave."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in starts}
    for number in range(rounds):
        for name, start in starts.items():
            directory = base / f"{name}{number}"
            directory.mkdir()
            directory.chmod(0o755)
            sink = servers.Sink(directory)
            routes = {domain: f"{address}:{sink.port}" for domain, address in _MANY.items()}
            try:
                with start(directory, routes | {"": f"127.0.0.1:{sink.port}"}) as server:
                    found[name].append(measure(server, sink, load))
            finally:
                sink.stop()
            shutil.rmtree(directory)
            kit.show(f"  {name:8}", found[name][-1])
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("loads", nargs="*", metavar="LOAD", help="all if none is named")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--shards", default="1", help="of mqcd's queue")
    given = parser.parse_args()
    mqcd = functools.partial(servers.mqcd, queue=f"<shards>{given.shards}</shards>")
    starts: Starts = {"mqcd": mqcd, "postfix": servers.postfix}
    known = loads(given.share)
    if unknown := set(given.loads) - set(known):
        parser.error(f"there is no load {' '.join(sorted(unknown))}")
    with kit.workplace() as base:
        base.chmod(0o755)
        for word in given.loads or known:
            for name, load in known[word].items():
                print(f"{name}, {load.unit} a second", flush=True)
                found = compare(base, load, given.rounds, starts)
                middle = {server: kit.medians(rounds) for server, rounds in found.items()}
                for server, figures in middle.items():
                    kit.show(server, figures)
                ours, theirs = middle["mqcd"], middle["postfix"]
                print(f"ratio {ours['end_to_end'] / theirs['end_to_end']:.2f}", end=", ")
                print(f"of processor time {ours['cpu_us'] / theirs['cpu_us']:.2f}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
