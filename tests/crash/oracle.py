"""What must hold of a queue after a crash, whatever killed it.

`recover` starts the server on what a crash left, stops it in order, and reads its files; that says all
that can be said without knowing what the world has seen (`Outcome.problems`). `judge` holds the rest
against the world: what was acknowledged, told or seen by a receiver before the crash.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mqcd.core.errors import MqcdError
from mqcd.core.events import BEST_EFFORT, Verb
from mqcd.core.model import Action, Area, Recipient
from mqcd.core.queueing.idempotency import NAME_OCTETS
from mqcd.core.queueing.spid import parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.queue.admin.findings import Kind
from mqcd.queue.admin.fsck.survey import survey
from mqcd.queue.admin.transfer import index
from mqcd.queue.admin.transfer.admission import known_keys
from mqcd.queue.clusters.quarantine import QUARANTINE
from mqcd.queue.format import keys
from mqcd.queue.manifest import log as manifest
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.reading.snapshot import Snapshot
from tests.contract import schema
from tests.contract.mail import delivered, read_all
from tests.crash.histories import Key, by_recipient, doubled, in_order, is_report, letters, may_be, miscounted
from tests.crash.lab import ARCHIVE, ROOTS, TOP, Actor, key_name, survivor, warning_of
from tests.crash.memory import MemoryDisk
from tests.crash.model import File, Mark, State
from tests.crash.worker import body_of

COPIES = TOP / "copies" / "new"
"""Where stories export to."""
IMPORTED = "imported"
"""Local parts of imported mail begin so: their lives began elsewhere."""

_DAMAGE = frozenset({Kind.LINE, Kind.FRAME, Kind.QUARANTINE})


@dataclass(slots=True)
class World:
    """What everybody outside of the server has seen up to some moment."""

    told: dict[Key, str] = field(default_factory=lambda: defaultdict(str))
    """Transitions that the store has told of: they were durable."""
    seen: Counter[Key] = field(default_factory=Counter)
    """How often a receiver got a message."""
    parked: set[Key] = field(default_factory=set)
    """Recipients that were given back, perhaps with an attempt begun."""
    damaged: set[Key] = field(default_factory=set)
    """Recipients whose record the disk itself damaged."""
    power_cut: bool = False
    """There was one before: removals that were not synced may have come undone."""
    keys: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Messages that clients were given for each key."""
    exported: int = 0
    """Messages of which somebody was told that a copy lies in another place."""

    @classmethod
    def after(cls, past: Iterable[Mark]) -> World:
        """The world once it has seen all this."""
        world = cls()
        for mark in past:
            world.hear(mark)
        return world

    def hear(self, mark: Mark) -> None:
        key = mark.spid, mark.number
        if mark.word == "S":
            self.seen[key] += 1
        elif mark.word == "P":
            self.parked.add(key)
        elif mark.word == "C":
            self.power_cut = True
        elif mark.word == "O":
            self.exported = mark.number
        elif mark.word == "Y":
            self.keys[mark.number].add(mark.spid)
        elif mark.word == "Q":
            self.damaged.add(key)
        else:
            self.told[key] += mark.word


@dataclass(frozen=True, slots=True)
class Rest:
    """An unfinished recipient as its record tells it."""

    area: Area
    attempts: int
    imported: bool
    warned: bool


@dataclass(slots=True)
class Outcome:
    """What a crash image became."""

    problems: list[str] = field(default_factory=list)
    """What is wrong whatever the world has seen."""
    warnings: Counter[str] = field(default_factory=Counter)
    """How many reports on its delay were accepted, by `warning_of` a recipient."""
    waste: list[str] = field(default_factory=list)
    """Files that nobody needs: removals are not synced, but a killed server must leave none for long."""
    damage: list[str] = field(default_factory=list)
    """Octets that do not check: wrong unless the disk itself damaged them."""
    lives: dict[Key, str] = field(default_factory=dict)
    """The transitions that the event files have."""
    queued: dict[Key, Rest] = field(default_factory=dict)
    quarantined: set[Key] = field(default_factory=set)
    shelved: set[Key] = field(default_factory=set)
    """Recipients with a line in a cluster that may be damaged."""
    keys: dict[bytes, int] = field(default_factory=dict)
    """Messages of the keys that are remembered."""
    exported: int = 0
    imported: int = 0


def judge(outcome: Outcome, world: World, *, kill: bool = False) -> list[str]:
    """All that is wrong; after a `kill` all that was written is still there, synced or not."""
    wrong = list(outcome.problems)
    if not world.damaged:
        wrong += outcome.damage
        wrong += outcome.waste if kill and not world.power_cut else ()
    if outcome.exported < world.exported:
        wrong.append(f"{world.exported} messages were exported, {outcome.exported} are there")
    wrong += _judge_keys(outcome, world)
    return [*wrong, *_judge_what_was_seen(outcome, world), *_judge_lives(outcome, world)]


def _judge_keys(outcome: Outcome, world: World) -> Iterator[str]:
    """A key that was acknowledged is remembered, with its one message; and so is that message."""
    for number, spids in world.keys.items():
        known = outcome.keys.get(key_name(number))
        if spids != {known}:
            yield f"key {number}: clients were given {spids}, {known} is remembered"
    for spid in outcome.keys.values():
        if (spid, 1) not in outcome.lives and not world.damaged:
            yield f"{_name((spid, 1))}: its key is remembered, and it was never accepted"


def _judge_what_was_seen(outcome: Outcome, world: World) -> Iterator[str]:
    lives = outcome.lives
    for key in world.damaged:
        if not (key in outcome.quarantined | outcome.shelved or _has_ended(lives.get(key, ""))):
            yield f"{_name(key)}: what was left of its record is gone"
    for key, told in world.told.items():
        life = lives.get(key, "")
        if key not in world.damaged and not _is_within(told, life):
            yield f"{_name(key)}: told {told}, the events have {life or 'nothing'}"
    for key, times in world.seen.items():
        life = lives.get(key, "")
        if key not in world.damaged and times > life.count("D") + life.count("U"):
            yield f"{_name(key)}: a receiver saw it {times} times, the events have {life}"


def _judge_lives(outcome: Outcome, world: World) -> Iterator[str]:
    for key, life in outcome.lives.items():
        if life.endswith("T") and key not in world.parked:
            yield f"{_name(key)}: an attempt without an outcome: {life}"
        ended = _has_ended(life) or life.endswith("M")
        if not (ended or key in outcome.queued or key in outcome.quarantined | world.damaged):
            yield f"{_name(key)}: neither ended nor queued nor in quarantine: {life}"


def _is_within(told: str, life: str) -> bool:
    """Whether the letters of `told` come in `life` in their order."""
    letters = iter(life)
    return all(letter in letters for letter in told)


def _name(key: Key) -> str:
    return f"{key[0]:016X}/{key[1]}"


def _has_ended(life: str) -> bool:
    return life.endswith(("D", "R", "X", "e"))


async def recover(state: State, *, links: bool, drained: bool) -> Outcome:
    """Start on a disk, stop in order, look; then, if `drained`, deliver everything that is left."""
    outcome = Outcome()
    actor = survivor(state, links)
    actor.disk.trace = None
    try:
        await actor.start()
        counted = sum(area.recipients for area in actor.store.stats().values())
        await actor.stop()
        _look(actor, outcome, counted)
        if drained and not outcome.problems:
            await _drain(actor, outcome)
    except (MqcdError, OSError, AssertionError, LookupError, ValueError, TypeError) as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
    return outcome


def _look(actor: Actor, outcome: Outcome, counted: int) -> None:
    """What the files say after an orderly stop."""
    disk, problems = actor.disk, outcome.problems
    found = survey(disk, actor.options, ours=True)
    for each in (*found.problems, *(note for note in found.notes if note.kind is Kind.QUARANTINE)):
        (outcome.damage if each.kind in _DAMAGE else problems).append(
            f"fsck: {each.kind} {each.path} {each.text}"
        )
    outcome.waste = [f"waste: {path}" for path in found.orphans]
    outcome.waste += [
        f"waste: {name}" for name in files(disk.state) if ".tmp " in name and "copies" not in name
    ]
    _read_queue(disk, outcome, counted)
    outcome.quarantined = _quarantined(disk)
    outcome.exported = _exported(disk)
    totals = _read_events(disk, outcome)
    state = manifest.read(disk, ROOTS[0] / "MANIFEST")
    assert state is not None
    outcome.shelved = _shelved(disk, state)
    _check_imports(disk, state, outcome)
    outcome.keys = _keys(disk, state)
    if state.last_segment >= state.first_live:
        problems.append("an orderly stop left a segment in the journal")
    elif +state.totals != totals and not outcome.damage:
        problems.append(f"the MANIFEST counts {dict(+state.totals)}, the events are {dict(totals)}")
    for key, rest in outcome.queued.items():
        _check_rest(key, rest, outcome)


def _read_queue(disk: MemoryDisk, outcome: Outcome, counted: int) -> None:
    snapshot = Snapshot(disk, *ROOTS[:2])
    try:
        items = [item.recipient for item in snapshot.items(Selection())]
        locations = Counter(recipient.key for recipient in items)
        outcome.problems += [
            f"{_name(key)}: {count} locations" for key, count in locations.items() if count > 1
        ]
        listed = sum(area.recipients for area in snapshot.stats().values())
        if not outcome.damage and not counted == listed == len(items):
            outcome.problems.append(
                f"{counted} recipients by the gauges, {listed} listed, {len(items)} found"
            )
        for each in items:
            outcome.queued[each.key] = Rest(
                each.area, each.attempts, each.address.startswith(IMPORTED), each.warned
            )
            if b"".join(snapshot.content(each.spid, each)) != body(each):
                outcome.problems.append(f"{_name(each.key)}: its content is not what was accepted")
    finally:
        snapshot.close()


def body(recipient: Recipient) -> bytes:
    """The content that a recipient's message must have."""
    if recipient.address.startswith(IMPORTED):
        return imported_body(recipient.address, recipient.size)
    return body_of(recipient.spid, recipient.size)


def imported_body(address: str, size: int) -> bytes:
    """The content of imported mail is known from its recipients' address, whose last part they share."""
    return (address.partition("@")[2].encode() * size)[:size]


_RECORD = re.compile(rb"\b([0-9A-F]{16})\|(\d+)\|")


def _records(data: bytes) -> set[Key]:
    """Recipients whose record begins somewhere in these octets, damaged or not."""
    return {(int(spid, 16), int(qid)) for spid, qid in _RECORD.findall(data)}


def _quarantined(disk: MemoryDisk) -> set[Key]:
    directory = ROOTS[0] / QUARANTINE
    return _records(b"".join(disk.read_file(directory / name) for name in disk.names(directory)))


def _shelved(disk: MemoryDisk, state: ManifestState) -> set[Key]:
    clusters = (disk.read_file(ROOTS[0] / each.name)[each.cursor :] for each in state.clusters.values())
    return _records(b"".join(clusters))


def _keys(disk: MemoryDisk, state: ManifestState) -> dict[bytes, int]:
    """The message of each key that the key files hold, the latest use last."""
    found: dict[bytes, int] = {}
    for file in state.keys.values():
        for each in keys.records_of(disk.read_file(ROOTS[0] / file.name)):
            found[each[:NAME_OCTETS]] = keys.used_at(each, 0).spid
    return found


def _exported(disk: MemoryDisk) -> int:
    """Messages that lie whole where an export was to put them."""
    if not disk.exists(COPIES / index.NAME):
        return 0
    entries = [index.decode(line.decode()) for line in disk.read_file(COPIES / index.NAME).splitlines()]
    return sum(disk.read_file(COPIES / each.file) == body(each.recipients[0]) for each in entries)


@lru_cache(maxsize=4096)
def _parse(packed: bytes) -> tuple[dict[str, Any], ...]:
    events = tuple(json.loads(line) for line in gzip.decompress(packed).splitlines())
    schema.check(events)
    return events


def _event_files(disk: MemoryDisk, problems: list[str]) -> Iterator[tuple[str, bytes]]:
    """Those that are there, and those that a reader had copied before they were removed."""
    here = [name for name in disk.names(ROOTS[2]) if name.endswith(".jsonl.gz")]
    copies = {name: disk.read_file(ARCHIVE / name) for name in disk.names(ARCHIVE)}
    for name in here:
        packed = disk.read_file(ROOTS[2] / name)
        if copies.pop(name, packed) != packed:
            problems.append(f"event file {name} is not what it was")
        yield name, packed
    yield from copies.items()


def _read_events(disk: MemoryDisk, outcome: Outcome) -> Counter[Verb]:
    events: list[dict[str, Any]] = []
    for name, packed in _event_files(disk, outcome.problems):
        try:
            events += _parse(packed)
        except (EOFError, OSError, ValueError, zlib.error) as error:
            outcome.problems.append(f"event file {name}: {error}")
    if doubled(events):
        outcome.problems.append(f"doubled ids: {doubled(events)}")
    events = [event for event in events if event["event"] not in BEST_EFFORT]
    lives = by_recipient(in_order(events))
    accepted = {spid for spid, _ in lives}
    outcome.warnings.update(
        event["client"] for event in events if event["event"] == "accepted" and "client" in event
    )
    outcome.imported = sum(_is_imported(life) for life in lives.values())
    for key, life in lives.items():
        outcome.lives[key] = _check_life(key, life, accepted, outcome)
    return Counter(Verb(event["event"]) for event in events)


def _check_life(key: Key, life: list[dict[str, Any]], accepted: Iterable[int], outcome: Outcome) -> str:
    """The life's letters; an end in lower case is that of a report that failed."""
    verbs, problems = letters(life), outcome.problems
    if not may_be(life, damaged=bool(outcome.damage)):
        problems.append(f"{_name(key)}: no legal life: {verbs}")
    if not _is_imported(life):
        problems += [f"{_name(key)}: {each}" for each in miscounted(life)]
    reports = [parse_spid(event["report"]) for event in life if event["event"] == "reported"]
    if not set(reports) <= set(accepted):
        problems.append(f"{_name(key)}: its report is not in the events")
    return verbs + "e" if is_report(life) and verbs.endswith(("B", "E")) else verbs


def _is_imported(life: list[dict[str, Any]]) -> bool:
    return bool(life[0].get("origin") == "import")


def _check_imports(disk: MemoryDisk, state: ManifestState, outcome: Outcome) -> None:
    """What was imported is known by its keys: else a second run would bring it again."""
    keys = len(known_keys(disk, ROOTS[0], state))
    if keys != outcome.imported:
        outcome.problems.append(f"{outcome.imported} recipients were imported, {keys} keys are known")


def _check_rest(key: Key, rest: Rest, outcome: Outcome) -> None:
    """An unfinished recipient's record says what its events say."""
    life = outcome.lives.get(key)
    if life is None:
        outcome.problems.append(f"{_name(key)}: queued, but the events do not know it")
        return
    if _has_ended(life):
        outcome.problems.append(f"{_name(key)}: queued in {rest.area}, though its life has ended: {life}")
    if rest.area not in _areas_after(life):
        outcome.problems.append(f"{_name(key)}: rests in {rest.area} after {life}")
    if rest.attempts != sum(map(life.count, "FUBE")) and not rest.imported:
        outcome.problems.append(f"{_name(key)}: {rest.attempts} attempts on record after {life}")
    if rest.warned is not (outcome.warnings[warning_of(key)] == 1):
        outcome.problems.append(
            f"{_name(key)}: warned={rest.warned}, with {outcome.warnings} reports on delay"
        )


def _areas_after(life: str) -> frozenset[Area]:
    """Where a recipient with this life may rest."""
    match life.rstrip("T")[-1:]:
        case "B" | "E":
            return frozenset({Area.BOUNCES})
        case "M":
            # Its grace may be over, and a report asked for.
            return frozenset({Area.REMOVED, Area.BOUNCES})
        case "H":
            return frozenset({Area.HELD})
        case "N" | "K" | "V":
            return frozenset({Area.INCOMING, Area.DEFERRED, Area.HELD})
        case _:
            return frozenset({Area.INCOMING, Area.DEFERRED})


async def _drain(actor: Actor, outcome: Outcome) -> None:
    """Deliver what is left, through the store: its contents are there, and nothing remains."""
    await actor.start()
    await actor.act(Action.RELEASE)
    actor.clock.advance(10_000_000)
    await actor.purge()
    while actor.store.stats()[Area.BOUNCES].recipients:
        await actor.report()
    while claimed := await actor.store.claim(50, actor.clock.now()):
        for each in claimed:
            if await read_all(await actor.store.content(each)) != body(each):
                outcome.problems.append(f"{_name(each.key)}: the store gives another content")
        await actor.begin(claimed)
        await actor.settle(claimed, [delivered()] * len(claimed))
        await actor.calm()
    await actor.stop()
    after = Outcome()
    _look(actor, after, 0)
    outcome.problems += [f"drained: {problem}" for problem in after.problems]
    for key in outcome.queued:
        life = after.lives.get(key, "")
        if not (_has_ended(life) or life.endswith("M")):
            outcome.problems.append(f"{_name(key)}: delivered, but the events say {after.lives.get(key)}")


def files(state: State) -> list[str]:
    """All live files of a disk, for people."""
    found: list[str] = []

    def walk(node: int, path: str) -> None:
        for name, child in sorted(state.directory(node).live().items()):
            here = state.nodes[child]
            if isinstance(here, File):
                found.append(f"{path}/{name} {len(here.live)}")
            else:
                walk(child, f"{path}/{name}")

    walk(0, "")
    return found
