"""What must hold of a queue's files, whatever killed its server: the checks that the crash tests share."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqcd.core.events import Verb
from mqcd.core.selection import Selection
from mqcd.queue import manifest
from mqcd.queue.durable import Disk
from mqcd.queue.snapshot import Snapshot

Key = tuple[int, int]

_LETTERS = {
    "accepted": "A",
    "attempted": "T",
    "delivered": "D",
    "deferred": "F",
    "bounced": "B",
    "expired": "E",
    "reported": "R",
    "discarded": "X",
    "outcome-unknown": "U",
}
_WHOLE_LIFE = re.compile(r"A(T+[FU]|F)*(T+D|T+[BE][RX])")
_WHOLE_REPORT = re.compile(r"A(T+[FU]|F)*(T+D|T+[BE])")
"""A life from acceptance to its end. `T+`: what was parked after it had begun may begin again."""


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
    return sorted(events, key=lambda event: int(event["id"].rsplit("/", 1)[1]))


def check_between_lives(root: Path, world: World) -> None:
    """No server runs: each unfinished recipient has one home, and none that was acknowledged is gone."""
    if not (root / "queue" / "pin").exists():
        assert not world.accepted, "no queue has come to be, but mail was acknowledged"
        return
    snapshot = Snapshot(Disk(), root / "queue", root / "spool")
    try:
        items = [item.recipient for item in snapshot.items(Selection())]
        homes = Counter(recipient.key for recipient in items)
        doubled = [key for key, count in homes.items() if count > 1]
        assert not doubled, f"recipients with two homes: {doubled[:5]}"
        lost = world.accepted - homes.keys() - world.delivered.keys() - world.refused
        assert not lost, f"{len(lost)} acknowledged recipients are gone: {sorted(lost)[:5]}"
        counted = sum(area.recipients for area in snapshot.stats().values())
        assert counted == len(items), f"stats say {counted}, there are {len(items)}"
        for spid, size in {(recipient.spid, recipient.size) for recipient in items}:
            got = sum(map(len, snapshot.content(spid)))
            assert got == size, f"content of {spid:016X} has {got} octets, not {size}"
    finally:
        snapshot.close()


def check_empty(root: Path) -> None:
    """After an orderly stop of an empty queue nothing is left but its skeleton, and files whose references
    are still to be counted: for that the queue takes at most one percent of its time."""
    state = manifest.read(Disk(), root / "queue" / "MANIFEST")
    assert state is not None
    doubtful = {f"{spid:016X}.msg" for spid in state.doubtful}
    left = [
        path
        for top in ("queue", "spool")
        for path in (root / top).rglob("*")
        if path.is_file() and path.suffix in (".mqc", ".msg", ".tmp") and path.name not in doubtful
    ]
    assert not left, f"orphans: {left[:5]} and {len(left)} in all"
    assert not (root / "queue" / "quarantine").exists()
    assert not state.clusters
    assert state.last_segment < state.first_live


def check_lives(root: Path, world: World) -> Counter[Verb]:
    """Events and ledger of a drained queue agree with what the world has seen; returns the totals."""
    events = read_events(root / "events")
    ids = Counter(event["id"] for event in events)
    assert len(ids) == len(events), f"doubled ids: {[i for i, n in ids.items() if n > 1][:5]}"
    lives: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        lives[int(event["spid"], 16), event["qid"]].append(event)
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
    verbs = "".join(_LETTERS[event["event"]] for event in life)
    name = f"{key[0]:016X}/{key[1]}: {verbs}"
    legal = _WHOLE_REPORT if life[0].get("origin") == "report" else _WHOLE_LIFE
    assert legal.fullmatch(verbs), f"no legal life: {name}"
    seen = world.delivered[key]
    unknown = verbs.count("U")
    assert seen <= verbs.count("D") + unknown, f"{name}: a receiver saw it {seen} times"
    if verbs.endswith("D"):
        assert seen, f"{name}: delivered, but no receiver has seen it"
    ended = 0
    for event in life:
        if event["event"] == "attempted":
            assert event["attempt"] == ended + 1, f"{name}: attempt {event['attempt']} after {ended}"
        ended += event["event"] in ("deferred", "outcome-unknown")
