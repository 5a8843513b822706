"""What must hold of a queue's files, whatever killed its server: the checks that the crash tests share."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqcd.core.events import Verb
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.queue.manifest import log as manifest
from mqcd.queue.reading.snapshot import Snapshot
from tests.crash.histories import Key, by_recipient, doubled, in_order, is_whole, letters, miscounted


@dataclass(slots=True)
class World:
    """What everybody outside of the server has seen, over all its lives."""

    accepted: set[Key] = field(default_factory=set)
    """Recipients that were acknowledged."""
    delivered: Counter[Key] = field(default_factory=Counter)
    """How often a receiver got a message for a recipient."""
    refused: set[Key] = field(default_factory=set)
    """Recipients that a receiver refused for good."""
    lines: int = 0

    def hear(self, line: str) -> str:
        """Take in one line of the worker; returns its word."""
        word, spid_text, number_text = line.split()
        spid, number = int(spid_text, 16), int(number_text)
        self.lines += 1
        if word == "A":
            self.accepted |= {(spid, qid) for qid in range(1, number + 1)}
        elif word == "D":
            self.delivered[spid, number] += 1
        elif word == "B":
            self.refused.add((spid, number))
        return word


def read_events(directory: Path) -> list[dict[str, Any]]:
    """All events in the order of their sequences."""
    events = [
        json.loads(line)
        for path in directory.glob("*.jsonl.gz")
        for line in gzip.decompress(path.read_bytes()).decode().splitlines()
    ]
    return in_order(events)


def check_between_lives(root: Path, world: World) -> None:
    """No server runs: each unfinished recipient has one record location, none acknowledged is gone."""
    if not (root / "queue" / "pin").exists():
        assert not world.accepted, "no queue has come to be, but mail was acknowledged"
        return
    snapshot = Snapshot(Disk(), root / "queue", root / "spool")
    try:
        items = [item.recipient for item in snapshot.items(Selection())]
        locations = Counter(recipient.key for recipient in items)
        doubled = [key for key, count in locations.items() if count > 1]
        assert not doubled, f"recipients with two locations: {doubled[:5]}"
        lost = world.accepted - locations.keys() - world.delivered.keys() - world.refused
        assert not lost, f"{len(lost)} acknowledged recipients are gone: {sorted(lost)[:5]}"
        counted = sum(area.recipients for area in snapshot.stats().values())
        assert counted == len(items), f"stats say {counted}, there are {len(items)}"
        for spid, size in {(recipient.spid, recipient.size) for recipient in items}:
            got = sum(map(len, snapshot.content(spid)))
            assert got == size, f"content of {spid:016X} has {got} octets, not {size}"
    finally:
        snapshot.close()


def check_empty(root: Path) -> None:
    """After an orderly stop of an empty queue nothing is left but its skeleton."""
    state = manifest.read(Disk(), root / "queue" / "MANIFEST")
    assert state is not None
    left = [
        path
        for top in ("queue", "spool")
        for path in (root / top).rglob("*")
        if path.is_file() and path.suffix in (".mqc", ".msg", ".tmp")
    ]
    assert not left, f"orphans: {left[:5]} and {len(left)} in all"
    assert not (root / "queue" / "quarantine").exists()
    assert not state.clusters
    assert state.last_segment < state.first_live


def check_lives(root: Path, world: World) -> Counter[Verb]:
    """Events and ledger of a drained queue agree with what the world has seen; returns the totals."""
    events = read_events(root / "events")
    assert not doubled(events), f"doubled ids: {doubled(events)}"
    lives = by_recipient(events)
    for key, life in lives.items():
        _check_life(key, life, world)
    lost = world.accepted - lives.keys()
    assert not lost, f"{len(lost)} acknowledged recipients without an event: {sorted(lost)[:5]}"
    totals = Counter(Verb(event["event"]) for event in events)
    ends = sum(
        life[-1]["event"] in ("delivered", "bounced", "expired", "reported", "discarded")
        for life in lives.values()
    )
    assert totals[Verb.ACCEPTED] == ends == len(lives)
    state = manifest.read(Disk(), root / "queue" / "MANIFEST")
    assert state is not None
    assert +state.totals == totals, f"MANIFEST counts {+state.totals}, events are {totals}"
    return totals


def _check_life(key: Key, life: list[dict[str, Any]], world: World) -> None:
    verbs = letters(life)
    name = f"{key[0]:016X}/{key[1]}: {verbs}"
    assert is_whole(life), f"no legal life: {name}"
    seen = world.delivered[key]
    unknown = verbs.count("U")
    assert seen <= verbs.count("D") + unknown, f"{name}: a receiver saw it {seen} times"
    if verbs.endswith("D"):
        assert seen, f"{name}: delivered, but no receiver has seen it"
    assert not list(miscounted(life)), f"{name}: {list(miscounted(life))}"
