"""mqcd beside other mail servers: the same load from one source to one sink through each in turn.

    python -m tests.bench.peers [--rounds 3] [--messages 2000] [--only mqcd,postfix] [--scenarios 100k]

Scenarios:
{scenarios}
Peers: {peers}; {default} where a scenario names none.

Needs root, Debian's postfix (its smtp-source too), strace and cgroup 2. All runs in a network namespace of
its own. In each round each peer starts with an empty queue below TMPDIR (default /var/tmp), which must be
a disk. A rate ends when the sink has had every recipient; a run fails unless it has each of them exactly
once, and the peer holds the deferred ones. mqcd's ledger must balance and fsck find no problems. Syncs are
counted in a run of their own, since strace slows it. What cannot be installed is named and left out.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import platform
import resource
import shutil
import signal
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.bench import kit
from tests.bench.peers import account, group, run
from tests.bench.peers.peer import Peer
from tests.bench.peers.peers import DEFAULT, PEERS
from tests.bench.peers.scenarios import SCENARIOS

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_TRACED = 400
"""Messages of a run that strace slows, at most."""


def arguments() -> argparse.Namespace:
    """The command line."""
    width = max(map(len, SCENARIOS)) + 2
    scenarios = "".join(f"  {name:{width}}{each.title}\n" for name, each in SCENARIOS.items())
    text = (__doc__ or "").format(scenarios=scenarios, peers=", ".join(PEERS), default=", ".join(DEFAULT))
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.peers",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=2000, help="of 4 KB; fewer of large ones")
    parser.add_argument("--only", type=_words(PEERS), help="peers, with commas between")
    parser.add_argument("--scenarios", type=_words(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--standing", type=int, default=500_000, help="deferred recipients standing by")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds for one load")
    parser.add_argument("--no-syncs", action="store_true", help="do not count syncs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw mqcd beside Postfix (SVG)")
    return parser.parse_args()


def _words(known: Mapping[str, object]) -> type[list[str]]:
    class Words(list[str]):
        def __init__(self, given: str) -> None:
            super().__init__(given.split(","))
            if unknown := set(self) - set(known):
                raise argparse.ArgumentTypeError(f"unknown: {' '.join(sorted(unknown))}")

    return Words


def isolate() -> None:
    """Enter a network namespace of this process's own, with loopback up."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise SystemExit(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


def installed(names: Sequence[str]) -> dict[str, Peer]:
    """Peers that can run here; the others are named with the reason."""
    found = {}
    for name in names:
        peer = PEERS[name]
        try:
            peer.install()
        except LookupError as reason:
            print(f"*** LEFT OUT: {name}: {reason}", flush=True)
        else:
            print(f"{name} {peer.version()}: before 250 {peer.promise}", flush=True)
            found[name] = peer
    return found


def names(scenario: str, only: Sequence[str] | None) -> Sequence[str]:
    """Peers of a scenario."""
    own = SCENARIOS[scenario].peers or DEFAULT
    return [name for name in own if name in only] if only else own


class Bench:
    """All rounds of all scenarios."""

    def __init__(self, base: Path, given: argparse.Namespace, peers: Mapping[str, Peer]) -> None:
        self._base, self._given, self._peers = base, given, peers
        self._limits = run.Limits(given.messages, given.standing, given.patience)
        self.results: dict[str, dict[str, account.Result]] = {}

    def scenario(self, name: str) -> None:
        """Its rounds, then its syncs."""
        load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
        print(f"\n{name}: {SCENARIOS[name].title} (load {load})", flush=True)
        chosen = [each for each in names(name, self._given.only) if each in self._peers]
        found = self.results[name] = {peer: account.Result() for peer in chosen}
        for number in range(self._given.rounds):
            for peer in chosen:
                self._once(name, peer, found[peer], number)
        if SCENARIOS[name].syncs and not self._given.no_syncs:
            for peer in chosen:
                self._syncs(name, peer, found[peer])

    def _once(self, name: str, peer: str, result: account.Result, number: int) -> None:
        if result.failed:
            return
        try:
            figures = run.once(self._peers[peer], self._base, SCENARIOS[name], self._limits)
        except run.Failed as fault:
            result.failed = str(fault)
            print(f"  {number + 1} {peer:10} FAILED: {fault}", flush=True)
        else:
            result.rounds[number] = figures
            kit.show(f"  {number + 1} {peer:10}", dict(figures))

    def _syncs(self, name: str, peer: str, result: account.Result) -> None:
        if result.failed:
            return
        limits = run.Limits(min(self._given.messages, _TRACED), 0, self._given.patience)
        try:
            result.syncs = run.count_syncs(self._peers[peer], self._base, SCENARIOS[name], limits)
        except run.Failed as fault:
            print(f"  syncs {peer:6} FAILED: {fault}", flush=True)
        else:
            print(f"  syncs {peer:6} {result.syncs:.3g} a message", flush=True)

    def save(self) -> None:
        """Write what was asked for; after each scenario, so that a run that is stopped leaves something."""
        given = self._given
        titles = {name: each.title for name, each in SCENARIOS.items()}
        if given.json:
            results = {
                name: {peer: asdict(each) for peer, each in found.items()}
                for name, found in self.results.items()
            }
            about = {
                "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} processors",
                "peers": {name: [each.version(), each.promise] for name, each in self._peers.items()},
                "messages": given.messages,
                "standing": given.standing,
            }
            given.json.write_text(json.dumps(about | {"results": results}, indent=1) + "\n")
        if given.chart:
            account.chart(self.results, titles, given.chart)

    def show(self) -> None:
        """The tables."""
        titles = {name: each.title for name, each in SCENARIOS.items()}
        peers = list(PEERS)
        print("\nrecipients a second, lowest to highest, times Postfix's\n")
        print(account.table(self.results, titles, peers))
        for name, found in self.results.items():
            if shards := account.efficiency(found):
                print(f"\nefficiency, {titles[name]}: {shards}")
        print("\nprocessor time a recipient, largest proportional memory, syncs a message\n")
        print(account.table(self.results, titles, peers, "cost"), flush=True)


def main() -> None:
    """Install, isolate, run, print."""
    given = arguments()
    if os.geteuid() or group.root() is None:
        raise SystemExit("this needs root and cgroup 2")
    if not given.no_syncs and shutil.which("strace") is None:
        print("*** LEFT OUT: syncs: strace is not installed", flush=True)
        given.no_syncs = True
    wanted = {peer: None for name in given.scenarios for peer in names(name, given.only)}
    peers = installed(list(wanted))
    isolate()
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    start = time.monotonic()
    with kit.workplace() as base:
        base.chmod(0o755)
        bench = Bench(base, given, peers)
        for name in given.scenarios:
            bench.scenario(name)
            bench.save()
        bench.show()
    print(f"\n{time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
