"""One run: a peer with an empty queue, a sink, and a load through both."""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import servers
from tests.bench.peers.group import Group
from tests.bench.peers.peer import ROOT, Peer, Plan
from tests.bench.peers.scenarios import Scenario

_START_S = 60.0
_SETTLE_S = 0.5
_IDLE_S = 10.0
_WARM = 100
"""Messages."""
_IN_ONE = 50
"""Recipients of each message that is made to stand by."""


class Failed(Exception):
    """A peer did not do what was asked of it; the text says what."""


@dataclass(frozen=True)
class Limits:
    """What the command line says."""

    messages: int
    standing: int
    patience: float
    """Seconds for one load."""


class Sink:
    """The sink's process."""

    def __init__(self, patience: float) -> None:
        self.port = servers.free_port()
        self._patience = patience
        command = [sys.executable, "-m", "tests.bench.peers.sink", str(self.port)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.answer()

    def answer(self) -> dict[str, Any]:
        """The next line it prints; {} if none comes in time."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], self._patience)
        found: dict[str, Any] = json.loads(self._process.stdout.readline()) if ready else {}
        return found

    def say(self, line: str) -> None:
        """Give it a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@dataclass(frozen=True)
class Running:
    """A peer that runs."""

    peer: Peer
    plan: Plan
    group: Group
    sink: Sink
    pid: int


@contextlib.contextmanager
def running(peer: Peer, directory: Path, patience: float) -> Iterator[Running]:
    """Start a peer and a sink in a new directory; stop both."""
    directory.mkdir()
    directory.chmod(0o755)
    sink = Sink(patience)
    group = Group()
    plan = Plan(directory, servers.free_port(), sink.port, servers.free_port())
    start = peer.prepare(plan)
    process = group.start(start.command, start.env, directory, start.user)
    try:
        end = time.monotonic() + _START_S
        while not (servers.answers(plan.port) and peer.ready(plan)):
            if process.poll() is not None or time.monotonic() > end:
                raise Failed(f"did not start: {_last_line(directory)}")
            time.sleep(0.02)
        yield Running(peer, plan, group, sink, process.pid)
    finally:
        group.end(process)
        sink.stop()
    if wrong := peer.audit(plan):
        raise Failed(wrong)
    shutil.rmtree(directory)


def _last_line(directory: Path) -> str:
    lines = (directory / "output").read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"


def load(server: Running, scenario: Scenario, messages: int, patience: float) -> float:
    """Send all; return at the last 250, with the time that took."""
    domain = "mixed.example" if scenario.mixed else "recipients.example"
    counts = scenario.counts(messages)
    start = time.monotonic()
    sources = []
    for number, (stream, count) in enumerate(zip(scenario.streams, counts, strict=True)):
        sessions = max(min(scenario.sessions // len(counts), count), 1)
        options = ["-d"] if scenario.kept else []
        if scenario.recipients > 1:
            options += ["-r", str(scenario.recipients)]
        sizes = ["-s", str(sessions), "-m", str(count), "-l", str(stream.octets)]
        sources.append(_source([*options, *sizes], f"s{number}@{domain}", server.plan.port))
    _wait(sources, patience)
    return time.monotonic() - start


def _source(options: list[str], recipient: str, port: int) -> subprocess.Popen[str]:
    ends = ["-f", "sender@example.org", "-t", recipient, f"127.0.0.1:{port}"]
    return subprocess.Popen(
        ["smtp-source", "-N", *options, *ends],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait(sources: list[subprocess.Popen[str]], patience: float) -> None:
    """All have ended well."""
    end = time.monotonic() + patience
    try:
        for source in sources:
            _, said = source.communicate(timeout=max(end - time.monotonic(), 0.01))
            if source.returncode:
                raise Failed(f"source: {' '.join(said.split()[-12:])}")
    except subprocess.TimeoutExpired:
        raise Failed(f"did not take the load in {patience:.0f} s") from None
    finally:
        for source in sources:
            source.kill()
            source.communicate()


def stand_by(server: Running, recipients: int, patience: float) -> int:
    """Fill its queue with deferred mail; return the number of its recipients."""
    messages = -(-recipients // _IN_ONE)
    server.sink.say(f"stand {messages * _IN_ONE}")
    options = ["-d", "-s", "20", "-r", str(_IN_ONE), "-m", str(messages), "-l", "1024"]
    _wait([_source(options, "s0@standing.example", server.plan.port)], patience)
    if not server.sink.answer():
        raise Failed("did not try all standing mail in time")
    return messages * _IN_ONE


def warm_up(server: Running, patience: float) -> None:
    """Relay some mail, and wait until what that sets off (a journal's first segments, caches) is done."""
    server.sink.say(f"begin {_WARM} 0")
    options = ["-d", "-s", "10", "-m", str(_WARM), "-l", "4096"]
    _wait([_source(options, "s0@recipients.example", server.plan.port)], patience)
    if not server.sink.answer():
        raise Failed("did not relay its first messages in time")
    end, before = time.monotonic() + _IDLE_S, server.group.seconds()
    while time.monotonic() < end:
        time.sleep(_SETTLE_S)
        now = server.group.seconds()
        if now - before < _SETTLE_S / 10:
            return
        before = now


def measure(server: Running, scenario: Scenario, limits: Limits) -> dict[str, float]:
    """One load, timed and checked."""
    warm_up(server, limits.patience)
    standing = stand_by(server, limits.standing, limits.patience) if scenario.standing else 0
    counts = scenario.counts(limits.messages)
    wanted = scenario.recipients if scenario.recipients > 1 else sum(counts)
    server.sink.say(f"begin {wanted} {int(scenario.mixed)}")
    spent = server.group.seconds()
    with server.group.peak() as memory:
        start = time.monotonic()
        took = load(server, scenario, limits.messages, limits.patience)
        reached = server.sink.answer()
        # What is done after the last delivery (removing files, ending a log) is part of the work.
        time.sleep(_SETTLE_S)
    spent = server.group.seconds() - spent
    server.sink.say("report")
    found = server.sink.answer()
    check(server, found, wanted, standing)
    total = reached["now"] - start
    figures = {
        "rate": wanted / total,
        "accepted": wanted / took,
        "cpu_ms": spent * 1e3 / wanted,
        "pss_mb": max(memory) / 1e6,
    }
    if scenario.recipients == 1:
        figures["mb_s"] = scenario.megabytes(limits.messages) / total
    return figures


def check(server: Running, found: dict[str, Any], wanted: int, standing: int) -> None:
    """The sink has each accepted recipient exactly once; the peer holds each deferred one."""
    if found["settled"] != wanted:
        raise Failed(f"lost or late: {wanted - found['settled']} of {wanted}")
    if found["twice"]:
        raise Failed(f"delivered twice: {found['twice']}")
    deferred = int(found["deferred"]) + standing
    if wrong := server.peer.ledger(server.plan, deferred):
        raise Failed(wrong)
    waiting = server.peer.waiting(server.plan, server.pid)
    if deferred and not standing and waiting is not None and waiting < deferred:
        raise Failed(f"lost: {deferred - waiting} of {deferred} deferred")


def once(peer: Peer, base: Path, scenario: Scenario, limits: Limits) -> dict[str, float]:
    """A timed run with an empty queue."""
    directory = base / f"{peer.name}-run"
    try:
        with running(peer, directory, limits.patience) as server:
            return measure(server, scenario, limits)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def count_syncs(peer: Peer, base: Path, scenario: Scenario, limits: Limits) -> float:
    """Syncs a message, in a run that strace slows."""
    directory = base / f"{peer.name}-syncs"
    counts = scenario.counts(limits.messages)
    try:
        with running(peer, directory, limits.patience) as server:
            warm_up(server, limits.patience)
            server.sink.say(f"begin {sum(counts)} 0")
            with server.group.syncs(base / f"{peer.name}.strace") as count:
                load(server, scenario, limits.messages, limits.patience)
                if not server.sink.answer():
                    raise Failed("not all came")
        return count[0] / sum(counts)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
