"""What is recorded: short stories that together take every step of the queue, and every sync, at least once.

Each ends with whatever queue is left; the trace is what counts. `aftermath` is what is done with a queue
that a crash has left, to see what a second crash makes of that.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Action, Area, Envelope, Origin, Recipient, Settlement, Verdict
from mqcd.core.progress import no_progress
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.queue.admin.transfer.admission import admit
from mqcd.queue.admin.transfer.departure import depart
from mqcd.queue.admin.transfer.export import export
from mqcd.queue.admin.transfer.letters import Letter, Tree, key_of
from mqcd.queue.helper import jobs
from mqcd.queue.reading.snapshot import Snapshot
from tests.contract.mail import bounced, deferred, delivered, expired
from tests.crash.harm import damaged
from tests.crash.lab import EVACUATE_AGE, INLINE_MAX, ROOTS, SENDER, Actor, resumed, survivor
from tests.crash.matrix import crash_points, some_cuts
from tests.crash.memory import Trace
from tests.crash.model import Op
from tests.crash.oracle import COPIES, IMPORTED, imported_body

Story = Callable[[Actor], Awaitable[None]]
LARGE = INLINE_MAX * 2


async def mail(actor: Actor) -> None:
    """Every kind of frame once, over three lives that end in order."""
    await actor.start()
    for many, size in ((1, 300), (3, 900), (1, LARGE), (2, INLINE_MAX + 5), (1, 100)):
        await actor.accept(many, size)
    due = actor.later(1000)
    await actor.try_all(delivered(), deferred(due), bounced(), deferred(due))
    await actor.try_all(delivered())
    await actor.stop()
    await actor.start()
    await actor.accept(2, 200)
    actor.clock.advance(2000)
    await actor.try_all(delivered(), delivered(), deferred(actor.later(1)))
    await actor.report()
    await actor.warn(actor.later(3000))
    await actor.evacuate()
    # Enough to begin more segments than there are slots: the slots are used again.
    for _ in range(14):
        await actor.accept(1, INLINE_MAX - 20)
        await actor.accept(2, INLINE_MAX - 30)
        await actor.try_all(delivered(), delivered(), delivered())
    await actor.calm()
    await actor.stop()
    await actor.start()
    actor.clock.advance(5000)
    while claimed := await actor.store.claim(9, actor.clock.now()):
        await actor.begin(claimed)
        await actor.settle(claimed, [delivered()] * len(claimed))
        await actor.calm()
    await actor.stop()


async def flight(actor: Actor) -> None:
    """Segments are evacuated while attempts are under way, verdicts come, and mail comes in."""
    await actor.start()
    for many, size in ((1, 200), (3, 700), (2, LARGE), (1, 400)):
        await actor.accept(many, size)
    flying = await actor.claim(4)
    await actor.begin(flying[:2])
    await actor.evacuate()
    await actor.settle(flying[:1], [delivered()])
    await actor.begin(flying[2:])
    await actor.settle(flying[2:3], [deferred(actor.later(500))])
    verdicts: list[Awaitable[None]] = []

    def while_copying(task: jobs.Task) -> None:
        if isinstance(task, jobs.Evacuate) and not verdicts:
            # A content is copied to the spool at this moment, and its last recipient gets its verdict.
            actor.seen(flying[1])
            verdicts.append(actor.store.settle([Settlement(recipient=flying[1], verdict=delivered())]))

    actor.workers.watched.before = while_copying
    await actor.accept(1, 600)
    await actor.evacuate()
    assert verdicts
    await verdicts[0]
    await actor.park(flying[3:], actor.later(700))
    await actor.accept(2, 300)
    await actor.evacuate()
    actor.clock.advance(1000)
    await actor.try_all(delivered(), bounced())
    await actor.stop()


async def handed(actor: Actor) -> None:
    """Mail goes straight to connections: its attempts begin in the frame that accepts it."""
    await actor.start()
    first = await actor.hand_over(1, 300)
    several = await actor.hand_over(3, LARGE)
    await actor.settle(first, [delivered()])
    due = actor.later(1000)
    await actor.settle(several[:2], [deferred(due), bounced()])
    await actor.evacuate()
    await actor.park(several[2:], 0)
    # What waits goes first, so this message is not handed over.
    assert not await actor.hand_over(1, 200)
    await actor.try_all(delivered(), delivered(), delivered())
    seen, _ = await actor.hand_over(1, 250), await actor.hand_over(2, 350)
    actor.seen(seen[0])
    await actor.kill()
    await actor.start()
    _fail(actor, "queue.wal.committer.perform: datasync")
    with suppress(StoreUnavailable):
        await actor.hand_over(2, 400)
    await actor.settle(await actor.hand_over(1, 100), [deferred(actor.later(10))])
    await actor.stop()


async def bulk(actor: Actor) -> None:
    """So much that contents and clusters are synced by whole file systems; then taken, some suspended."""
    await actor.start()
    for number in range(12):
        await actor.accept(1 + number % 6, 150 + 40 * number, f"d{number % 3}.example")
    claimed = await actor.claim(6)
    await actor.begin(claimed)
    await actor.settle(claimed, [deferred(actor.later(1000 * (i + 1))) for i in range(5)] + [bounced()])
    await actor.evacuate()
    await actor.stop()
    await actor.start()
    actor.clock.advance(3000)
    taken = await actor.claim(9, {"d1.example": actor.later(60_000)})
    await actor.begin(taken[:5])
    await actor.settle(taken[:5], [delivered(), deferred(actor.later(20)), delivered(), expired(), bounced()])
    await actor.park(taken[5:], 0)
    await actor.evacuate()
    await actor.report()
    actor.clock.advance(90_000)
    for _ in range(3):
        await actor.try_all(delivered(), delivered())
    await actor.evacuate()
    await actor.stop()


async def killed(actor: Actor) -> None:
    """Lives that are cut off with attempts under way, until a recipient has been so three times."""
    await actor.start()
    for many, size in ((1, 200), (3, 500), (1, LARGE), (2, 300)):
        await actor.accept(many, size)
    await actor.begin(await actor.claim(3))
    await actor.kill()
    actor.arrival = 130
    for _ in range(2):
        await actor.start()
        actor.clock.advance(70_000)
        claimed = await actor.claim(4)
        actor.seen(claimed[0])
        await actor.begin(claimed[:3])
        await actor.settle(claimed[2:3], [deferred(actor.later(10))])
        await actor.accept(1, 250)
        await actor.kill()
    await actor.start()
    await actor.accept(2, LARGE)
    await actor.evacuate()
    await actor.kill()
    await actor.start()
    await actor.stop()


async def imported(actor: Actor) -> None:
    """Mail from another queue comes in by one edit, into a queue that is new and into one that has mail."""
    for number in range(2):
        actor.clock.advance(1000)
        letters = [_letter(actor, number * 20 + index) for index in range(5)]
        async with actor.owned() as ours:
            octets = sum(each.octets for each in letters)
            recipients = sum(len(each.recipients) for each in letters)
            admit(ours, "eml", Tree(letters=letters, recipients=recipients, octets=octets), no_progress)
        for each in letters:
            _tell_imported(actor, each)
        await actor.start()
        await actor.accept(2, 300)
        actor.clock.advance(100_000)
        await actor.try_all(delivered(), delivered(), deferred(actor.later(10)))
        await actor.stop()


def _letter(actor: Actor, number: int) -> Letter:
    many = 1 + number % 2
    area = (Area.INCOMING, Area.DEFERRED, Area.BOUNCES)[number % 3]
    now = actor.clock.now()
    envelope = Envelope(spid=0, sender=SENDER, received=now - 5000, origin=Origin.IMPORT)
    domain = f"d{number}.example"
    recipients = tuple(
        Recipient(
            envelope=envelope,
            size=0,
            qid=qid,
            address=f"{IMPORTED}-{qid}@{domain}",
            area=area,
            due=now if area is Area.DEFERRED else 0,
            attempts=0 if area is Area.INCOMING else 2,
            code=0 if area is Area.INCOMING else 450,
            status="" if area is Area.INCOMING else "4.2.0",
            reply="",
        )
        for qid in range(1, many + 1)
    )
    size = 200 + number * 13
    content = imported_body(recipients[0].address, size)
    return Letter(
        octets=size,
        envelope=envelope,
        recipients=recipients,
        keys=tuple(key_of(number, qid) for qid in range(many)),
        several=many > 1,
        content=lambda: iter([content]),
    )


def _tell_imported(actor: Actor, letter: Letter) -> None:
    """Whoever ran the command was told that this mail is in the queue."""
    snapshot = Snapshot(actor.disk, *ROOTS[:2])
    wanted = {recipient.address for recipient in letter.recipients}
    for item in list(snapshot.items(Selection())):
        if item.recipient.address in wanted:
            actor.disk.mark("A", *item.recipient.key)
    snapshot.close()


async def departed(actor: Actor) -> None:
    """Messages go to another store: two of four, then one more."""
    await actor.start()
    spids = [await actor.accept(many, size) for many, size in ((1, 200), (3, LARGE), (1, 300), (2, 400))]
    await actor.try_all(deferred(actor.later(1000)))
    await actor.stop()
    for going in ({spids[0], spids[1]}, {spids[2]}):
        snapshot = Snapshot(actor.disk, *ROOTS[:2])
        leaving = [item.recipient for item in snapshot.items(Selection()) if item.recipient.spid in going]
        snapshot.close()
        async with actor.owned() as ours:
            depart(ours, going, "migrated")
        for each in leaving:
            actor.disk.mark("X", *each.key)
    await actor.start()
    await actor.accept(1, 250)
    actor.clock.advance(2000)
    await actor.try_all(delivered(), delivered())
    await actor.stop()


async def amended(actor: Actor) -> None:
    """Operators hold, release, remove, bounce, redirect, retry and reschedule, in journal and clusters."""
    await actor.start()
    for many, size in ((1, 200), (3, 500), (2, LARGE), (1, 300)):
        await actor.accept(many, size)
    await actor.try_all(deferred(actor.later(9000)), deferred(actor.later(5000)))
    # Of clusters some lines are selected, and of the journal some entries.
    await actor.evacuate()
    await actor.accept(2, 250)
    first, second = (Selection(where=parse_where(f"recipient ~ u{n}@*", 0)) for n in range(2))
    assert await actor.act(Action.HOLD, first)
    assert await actor.act(Action.REMOVE, second, until=actor.later(60_000))
    await actor.evacuate()
    await actor.stop()
    await actor.start()
    assert await actor.act(Action.UNDO, Selection(area=Area.REMOVED), target="remove-2")
    assert await actor.act(Action.REDIRECT, second, target="relay.example:25")
    await actor.act(Action.RETRY, until=actor.later(0))
    await actor.act(Action.RESCHEDULE, until=actor.later(2000))
    await actor.evacuate()
    assert await actor.act(Action.BOUNCE, Selection(limit=2), until=actor.later(500), report=True)
    assert await actor.act(Action.RELEASE)
    actor.clock.advance(3000)
    await actor.purge()
    await actor.report()
    await actor.try_all(delivered(), delivered())
    await actor.evacuate()
    await actor.stop()


async def keyed(actor: Actor) -> None:
    """Mail comes in under keys, and again under the same, over evacuations, lives and a kill."""
    await actor.start()
    for number in range(3):
        await actor.accept_once(number, 200)
    await actor.accept_once(1, 300)
    await actor.try_all(delivered(), deferred(actor.later(1000)))
    await actor.evacuate()
    await actor.accept_once(0, 200)
    await actor.accept_once(3, LARGE)
    await actor.evacuate()
    await actor.kill()
    await actor.start()
    for number in range(5):
        await actor.accept_once(number, 250)
    await actor.stop()
    await actor.start()
    await actor.accept_once(4, 100)
    actor.clock.advance(2000)
    await actor.try_all(delivered())
    await actor.stop()


async def copied(actor: Actor) -> None:
    """A file system that takes no more links of a file: names of one content are copies."""
    await actor.start()
    await actor.accept(3, 300)

    def change(op: Op) -> None:
        if op.name == "link" and "spool" in op.site:
            raise OSError(errno.EMLINK, "made to fail")

    actor.disk.on_change = change
    await actor.accept(2, LARGE)
    await actor.try_all(delivered())
    await actor.evacuate()
    await actor.try_all(delivered(), deferred(actor.later(10)))
    await actor.stop()


async def exported(actor: Actor) -> None:
    """Somebody copies all mail to another place."""
    await actor.start()
    for many, size in ((1, 200), (2, LARGE), (1, 300)):
        await actor.accept(many, size)
    await actor.try_all(deferred(actor.later(1000)))
    await actor.evacuate()
    await actor.accept(1, 400)
    done = export(actor.disk, ROOTS[:2], Selection(), COPIES)
    actor.disk.mark("O", 0, done.messages)
    await actor.try_all(delivered())
    await actor.stop()


async def failing(actor: Actor) -> None:
    """Syncs fail: of the journal, of the MANIFEST, of a spool file; what was refused may still be on disk.

    And of a slot that was to be made ready: the journal fills it itself.
    """
    _fail(actor, "queue.helper.jobs.prepare: zero_fill", lasting=True)
    await actor.start()
    await actor.accept(1, 200)
    flying = await actor.claim(1)
    await actor.begin(flying)
    _fail(actor, "queue.wal.committer.perform: datasync")
    await actor.settle(flying, [delivered()])
    await actor.accept(2, 300)
    _fail(actor, "queue.manifest.log.Manifest.commit: sync_appended")
    await actor.seal()
    await actor.stop()
    await actor.start()
    await actor.accept(1, LARGE)
    await actor.try_all(deferred(actor.later(10)))
    await actor.stop()


def _fail(actor: Actor, site: str, *, lasting: bool = False) -> None:
    """Once, or until another one is to fail."""

    def change(op: Op) -> None:
        if op.site == site:
            if not lasting:
                actor.disk.on_change = None
            raise OSError(errno.EIO, "made to fail")

    actor.disk.on_change = change


async def aftermath(actor: Actor, *, patient: bool = False) -> None:
    """A life after a crash: what was left is tried, and mail comes in. A patient one evacuates first."""
    actor.arrival = 0 if patient else 170
    await actor.start()
    if patient:
        actor.clock.advance(EVACUATE_AGE + 1)
        await actor.calm()
    claimed = list(await actor.store.claim(3, actor.clock.now()))
    if claimed:
        await actor.begin(claimed)
        verdicts: list[Verdict] = [delivered(), deferred(actor.later(30)), bounced()]
        await actor.settle(claimed, verdicts[: len(claimed)])
    await actor.accept(2, 220)
    await actor.accept(1, INLINE_MAX + 100)
    await actor.accept_once(1, 120)
    await actor.stop()


STORIES: dict[str, tuple[Story, bool]] = {
    "mail": (mail, False),
    "mail, hard links": (mail, True),
    "in flight": (flight, False),
    "in flight, hard links": (flight, True),
    "handed over": (handed, False),
    "bulk": (bulk, False),
    "bulk, hard links": (bulk, True),
    "killed": (killed, False),
    "failing syncs": (failing, False),
    "copies for links": (copied, True),
    "import": (imported, False),
    "export": (exported, False),
    "departure": (departed, False),
    "operators": (amended, False),
    "damage": (damaged, False),
    "keys": (keyed, False),
}
"""By name, each with its `hardlinks`."""


async def record(name: str) -> Actor:
    """One story, told."""
    story, links = STORIES[name]
    actor = Actor(links=links)
    await story(actor)
    return actor


@dataclass(frozen=True, slots=True)
class Told:
    """A story, or what came after one was cut off."""

    name: str
    story: str
    trace: Trace
    first: int = 0
    """What was before this change belongs to another one."""

    @property
    def links(self) -> bool:
        return STORIES[self.story][1]


async def tell(story: str) -> Told:
    """One story from beginning to end."""
    return Told(story, story, (await record(story)).trace)


async def killed_before_syncs(told: Told) -> list[Told]:
    """The story cut off by SIGKILL where each of its sync sites comes first, and two ends of that."""
    firsts: dict[str, int] = {}
    for number, op in enumerate(told.trace.ops):
        if op.syncs:
            firsts.setdefault(op.site, number)
    lives = []
    for site, number in firsts.items():
        for patient in (False, True):
            actor = resumed(told.trace, number, told.links)
            await aftermath(actor, patient=patient)
            name = f"{told.name}, killed before {site}{', evacuated at once' if patient else ''}"
            lives.append(Told(name, told.story, actor.trace, number))
    return lives


async def cut_again(told: Told, *, many: int, seed: int) -> list[Told]:
    """The power is cut `many` times by chance; what each leaves goes on in a trace of its own."""
    chance = random.Random(seed)
    ops = told.trace.ops
    changes = [number for number in range(told.first, len(ops)) if ops[number].mark is None]
    points = set(chance.sample(changes, min(many, len(changes))))
    lives = []
    for prefix, state, _ in crash_points(told.trace, told.first):
        if prefix in points:
            past = (*told.trace.past, *(op.mark for op in ops[:prefix] if op.mark is not None))
            units = state.undecided()
            cut = list(some_cuts(prefix, units, 1, chance))[-1]
            actor = survivor(state.image(cut.choice(units)).state(), told.links, past)
            await aftermath(actor, patient=chance.random() < 0.5)
            lives.append(Told(f"{told.name}, power cut at {prefix}", told.story, actor.trace))
    return lives
