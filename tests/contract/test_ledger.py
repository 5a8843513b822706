"""Any sequence of calls and restarts: the store holds what a model of a few lines holds, and no more.

After every step the records, the areas' figures, what is in flight and the ledger are compared: per
recipient, accepted = delivered + bounced + expired + purged + queued (a bounce that waits is not counted as
queued; what operators removed is, until its grace is over).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mqcd.core.events import Verb
from mqcd.core.model import (
    Action,
    Amended,
    Area,
    AreaStats,
    Batch,
    Discarded,
    Origin,
    Purged,
    Recipient,
    Reported,
    Settlement,
    Verdict,
)
from mqcd.core.ports import QueueStore
from mqcd.core.queueing.amendment import amended, applies
from mqcd.core.queueing.transition import after, not_later, parked, unknown
from mqcd.core.selecting.selection import Selection
from mqcd.ops.metrics.ledger import Ledger
from tests.contract.conftest import marked
from tests.contract.harness import HARNESSES, HOUR, MINUTE, SCHEDULE, Harness, Restart
from tests.contract.mail import Post, batch, bounced, chunks, deferred, delivered, expired

Key = tuple[int, int]
Result = TypeVar("Result")

DOMAINS = ("one.example", "two.example", "three.example")
ACTIONS = tuple(each for each in Action if each is not Action.UNDO)
AMENDMENTS = (
    Verb.HELD,
    Verb.RELEASED,
    Verb.REMOVED,
    Verb.RESTORED,
    Verb.REDIRECTED,
    Verb.RESCHEDULED,
)
WAITS = st.sampled_from([0, 1, MINUTE, 20 * MINUTE, 5 * HOUR])
EXAMPLES = {
    "memory": (60, 50),
    "shared": (30, 50),
    "files": (4, 40),
    "symlinks": (4, 40),
    "sqlite": (3, 40),
    "redis": (2, 40),
    "s3": (2, 40),
    "leveldb": (4, 40),
    "postgres": (2, 40),
    "cluster": (4, 40),
    "cluster-links": (2, 40),
}
"""How many sequences, and how many steps in each; what touches disks gets fewer."""
OPERATED = {"memory": (40, 50), "files": (3, 40), "cluster": (4, 40), "cluster-links": (2, 40)}
"""The same where operators act."""
LOOKS = 5
"""A store may move records between a look at them and one at its figures."""
FINDING = (Phase.explicit, Phase.reuse, Phase.generate)
"""What touches disks is too slow for a search after the shortest sequence that fails."""
PHASES = {"memory": (*FINDING, Phase.shrink)}


class LedgerMachine(RuleBasedStateMachine):
    """A store and its model side by side."""

    make: Callable[[Path], Harness]
    restarts: Sequence[Restart]

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner()
        self._harness = type(self).make(Path(self._directory.name))
        self._store: QueueStore
        self._records: dict[Key, Recipient] = {}
        self._claimed: set[Key] = set()
        self._begun: set[Key] = set()
        self._aside: dict[Key, int] = {}
        """Until when a record may rest because its domain was passed over."""
        self._accepted = 0
        self._ended: Counter[str] = Counter()
        self._woken = asyncio.Event()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(work)

    @property
    def now(self) -> int:
        return self._harness.clock.now()

    @property
    def post(self) -> Post:
        return Post(self._store, self._harness.clock)

    @initialize()
    def start(self) -> None:
        self._store = self.run(self._harness.start())
        self._open_books()
        self._store.watch(self._woken.set)

    def _open_books(self) -> None:
        """As the server does once it has started: see `mqcd.ops.metrics.ledger`."""
        self._books = Ledger(self._harness.meters, self._store)
        self._books.open(quarantined=0)

    def teardown(self) -> None:
        self.run(self._harness.stop())
        self._runner.close()
        self._directory.cleanup()

    # ------------------------------------------------------------ mail in

    @rule(
        domains=st.lists(st.sampled_from(DOMAINS), min_size=1, max_size=4),
        null=st.booleans(),
        octets=st.sampled_from([0, 10, 70_000]),
        streamed=st.booleans(),
    )
    def enqueue(self, domains: list[str], null: bool, octets: int, streamed: bool) -> None:
        async def work() -> Sequence[Recipient]:
            content = chunks(b"x" * octets, 9000) if streamed else b"x" * octets
            addresses = [f"r{number}@{domain}" for number, domain in enumerate(domains)]
            sender = "" if null else "s@example.com"
            return await self._store.enqueue(self.post.submission(*addresses, sender=sender, content=content))

        self._take(self.run(work()))

    def _take(self, recipients: Sequence[Recipient]) -> None:
        self._records |= {each.key: each for each in recipients}
        self._accepted += len(recipients)

    # ------------------------------------------------------------ claims

    def _due(self) -> set[Key]:
        return {
            key
            for key, each in self._records.items()
            if key not in self._claimed
            and each.area in (Area.INCOMING, Area.DEFERRED)
            and each.due <= self.now
        }

    @rule(room=st.integers(1, 6), skipped=st.sets(st.sampled_from(DOMAINS), max_size=2), wait=WAITS)
    def claim(self, room: int, skipped: set[str], wait: int) -> None:
        until = self.now + wait
        found = self.run(self._claim(room, dict.fromkeys(skipped, until)))
        due = self._due()
        assert len(found) <= room
        for each in found:
            assert each.key in due
            assert each == self._records[each.key]
            assert until <= self.now or each.domain not in skipped
        self._claimed |= {each.key for each in found}
        for key in self._due():
            if self._records[key].domain in skipped:
                self._aside[key] = max(until, self._aside.get(key, 0))

    async def _claim(self, room: int, skip: dict[str, int]) -> Sequence[Recipient]:
        """A claim; a store that moves records about may give nothing, and calls when it can again.

        One that forgets to call hangs here, until the time limit of the test.
        """
        while True:
            self._woken.clear()
            found = await self._store.claim(room, self.now, skip)
            due = {key for key in self._due() if self._aside.get(key, 0) <= self.now}
            if found or all(self._records[key].domain in skip for key in due):
                return found
            await self._woken.wait()

    @rule(room=st.integers(1, 5))
    def claim_bounces(self, room: int) -> None:
        async def work() -> Sequence[Recipient]:
            return await self._store.claim_bounces(room)

        found = self.run(work())
        waiting = {
            key
            for key, each in self._records.items()
            if each.area is Area.BOUNCES and key not in self._claimed
        }
        assert len(found) <= room
        assert {each.key for each in found} <= waiting
        assert bool(found) is bool(waiting)
        self._claimed |= {each.key for each in found}

    def _pick(self, data: st.DataObject, *, bounces: bool) -> list[Recipient]:
        """Some claimed recipients, at least one."""
        keys = [key for key in self._claimed if (self._records[key].area is Area.BOUNCES) is bounces]
        picked = data.draw(st.lists(st.sampled_from(sorted(keys)), min_size=1, max_size=4, unique=True))
        return [self._records[key] for key in picked]

    def _has_claimed(self, *, bounces: bool) -> bool:
        return any((self._records[key].area is Area.BOUNCES) is bounces for key in self._claimed)

    @precondition(lambda self: self._has_claimed(bounces=False))
    @rule(data=st.data(), wait=WAITS)
    def park(self, data: st.DataObject, wait: int) -> None:
        picked = self._pick(data, bounces=False)
        until = self.now + wait if wait else 0

        async def work() -> None:
            await self._store.park(picked, until)

        self.run(work())
        for each in picked:
            self._release(each.key)
            self._records[each.key] = parked(each, min(until, self._latest_due))

    @property
    def _latest_due(self) -> int:
        return self.now + SCHEDULE.longest

    def _release(self, key: Key) -> None:
        self._claimed.discard(key)
        self._begun.discard(key)
        self._aside.pop(key, None)

    # ------------------------------------------------------------ attempts

    @precondition(lambda self: self._has_claimed(bounces=False))
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        picked = self._pick(data, bounces=False)

        async def work() -> None:
            await self._store.begin(picked, "mx.example")

        self.run(work())
        self._begun |= {each.key for each in picked}

    @precondition(lambda self: self._has_claimed(bounces=False))
    @rule(data=st.data(), wait=WAITS)
    def settle(self, data: st.DataObject, wait: int) -> None:
        choices: list[Verdict] = [delivered(), deferred(self.now + wait), bounced(), expired()]
        verdicts = st.sampled_from(choices)
        picked = self._pick(data, bounces=False)
        self._settle([(each, data.draw(verdicts)) for each in picked])

    @precondition(lambda self: self._has_claimed(bounces=True))
    @rule(data=st.data(), report=st.booleans())
    def end_bounces(self, data: st.DataObject, report: bool) -> None:
        picked = self._pick(data, bounces=True)
        if not report:
            self._settle([(each, Discarded(reason="setting")) for each in picked])
            return
        submission = self.post.submission("s@example.com", sender="", origin=Origin.REPORT)
        spid = submission.envelope.spid

        async def work() -> None:
            verdict = Reported(report_spid=spid)
            await self._store.settle(
                [Settlement(recipient=each, verdict=verdict) for each in picked], [submission]
            )

        self.run(work())
        for each in picked:
            self._end(each, Reported(report_spid=spid))
        self._take(
            [
                Recipient(
                    envelope=submission.envelope,
                    size=len(submission.content) if isinstance(submission.content, bytes) else 0,
                    qid=1,
                    address="s@example.com",
                )
            ]
        )

    def _settle(self, verdicts: Sequence[tuple[Recipient, Verdict]]) -> None:
        async def work() -> None:
            await self._store.settle(
                [Settlement(recipient=each, verdict=verdict) for each, verdict in verdicts]
            )

        self.run(work())
        for each, verdict in verdicts:
            self._end(each, verdict)

    def _end(self, recipient: Recipient, verdict: Verdict) -> None:
        self._release(recipient.key)
        self._ended[type(verdict).__name__.lower()] += 1
        record = after(recipient, not_later(verdict, self._latest_due))
        if record is None:
            del self._records[recipient.key]
        else:
            self._records[recipient.key] = record

    # ------------------------------------------------------------ the world

    @rule(ms=st.sampled_from([1, MINUTE, HOUR, 5 * HOUR]))
    def advance(self, ms: int) -> None:
        self._harness.clock.advance(ms)

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        how = data.draw(st.sampled_from(list(self.restarts)))
        self._store = self.run(self._harness.restart(how))
        self._open_books()
        self._store.watch(self._woken.set)
        for key in self._begun:
            self._records[key] = unknown(self._records[key], SCHEDULE, self.now)
            self._ended["unknown"] += 1
        self._claimed.clear()
        self._begun.clear()

    # ------------------------------------------------------------ what always holds

    @invariant()
    def records_and_figures_are_the_models(self) -> None:
        for _ in range(LOOKS):
            self._look()
            if self._store.stats() == self._sums():
                return
        assert self._store.stats() == self._sums()

    def _look(self) -> None:
        async def work() -> dict[Key, Recipient]:
            return {each.key: each async for each in self._store.scan(Selection())}

        found = self.run(work())
        for key, until in self._aside.items():
            # What was passed over counts as parked once it has moved, which a store may do at any time.
            each, known = found[key], self._records[key]
            if each != known and each.due <= until and key not in self._claimed:
                self._records[key] = parked(known, each.due)
        assert found == self._records

    def _sums(self) -> dict[Area, AreaStats]:
        sums = {}
        for area in Area:
            here = [each for each in self._records.values() if each.area is area]
            sums[area] = AreaStats(
                recipients=len(here),
                octets=sum(each.size for each in here),
                oldest=min((each.envelope.received for each in here), default=None),
            )
        return sums

    @invariant()
    def the_claimed_are_in_flight(self) -> None:
        for key, each in self._records.items():
            assert self._store.in_flight(each) is (key in self._claimed)

    @invariant()
    def the_books_of_events_and_of_the_store_agree(self) -> None:
        assert self._books.imbalance(quarantined=0) == 0

    @invariant()
    def the_ledger_balances(self) -> None:
        observer = self._harness.observer
        ends = (Verb.DELIVERED, Verb.BOUNCED, Verb.EXPIRED)
        queued = sum(each.area is not Area.BOUNCES for each in self._records.values())
        assert observer.count(Verb.ACCEPTED) == self._accepted
        purged = len(observer.purges)
        assert self._accepted == sum(observer.count(verb) for verb in ends) + purged + queued
        amended = sum(observer.count(verb) for verb in AMENDMENTS)
        own = {name: count for name, count in (("purged", purged), ("amended", amended)) if count}
        assert own | {
            name: observer.count(verb)
            for name, verb in {
                "delivered": Verb.DELIVERED,
                "deferred": Verb.DEFERRED,
                "bounced": Verb.BOUNCED,
                "expired": Verb.EXPIRED,
                "reported": Verb.REPORTED,
                "discarded": Verb.DISCARDED,
                "unknown": Verb.OUTCOME_UNKNOWN,
            }.items()
            if observer.count(verb)
        } == dict(self._ended)


class OperatedMachine(LedgerMachine):
    """The same while operators act. A machine of its own: their actions leave few verdicts to the other."""

    def __init__(self) -> None:
        super().__init__()
        self._batches: list[str] = []
        """Actions so far, by name."""

    @precondition(lambda self: bool(self._records))
    @rule(data=st.data(), action=st.sampled_from(ACTIONS))
    def act(self, data: st.DataObject, action: Action) -> None:
        spid, _ = data.draw(st.sampled_from(sorted(self._records)))
        name = f"{action}-{len(self._batches)}"
        self._batches.append(name)
        target = "moved@three.example" if action is Action.REDIRECT else ""
        report = action is Action.BOUNCE
        order = batch(action, self.post, id=name, target=target, report=report)
        self._apply(order, Selection(spid=spid))

    @precondition(lambda self: bool(self._batches))
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from(self._batches))
        name = f"{Action.UNDO}-{len(self._batches)}"
        self._batches.append(name)
        self._apply(batch(Action.UNDO, self.post, id=name, target=target), Selection())

    def _apply(self, order: Batch, selection: Selection) -> None:
        async def work() -> tuple[list[Recipient], int, int]:
            changed: list[Recipient] = []
            by_store = in_flight = 0
            async with aclosing(self._store.pick(selection, order)) as parts:
                async for part in parts:
                    changed += part.recipients
                    by_store += part.changed
                    in_flight += len(part.in_flight)
                    verdict = Amended(batch=order)
                    await self._store.settle(
                        [Settlement(recipient=each, verdict=verdict) for each in part.recipients]
                    )
            return changed, by_store, in_flight

        async def scan() -> dict[Key, Recipient]:
            return {each.key: each async for each in self._store.scan(Selection())}

        meant = {
            key for key, each in self._records.items() if selection.matches(each) and applies(each, order)
        }
        changed, by_store, in_flight = self.run(work())
        others = meant - self._claimed - {each.key for each in changed}
        assert len(others) == by_store
        there = self.run(scan()) if others else {}
        back = Batch(id="back", action=Action.UNDO, at=self.now, by="", target=order.id)
        undoes = order.action is Action.UNDO
        changed += [self._records[key] if undoes else amended(there[key], back) for key in others]
        assert {each.key for each in changed} == meant - self._claimed
        assert in_flight == len(meant & self._claimed)
        for each in changed:
            known = self._records[each.key]
            if each != known and each.due <= self._aside.get(each.key, 0):
                known = parked(known, each.due)
            assert each == known
            self._end(known, Amended(batch=order))

    @rule(room=st.integers(1, 5))
    def purge(self, room: int) -> None:
        async def work() -> Sequence[Recipient]:
            return await self._store.claim_removed(room)

        found = self.run(work())
        assert len(found) <= room
        for each in found:
            assert each == self._records[each.key]
            assert each.area is Area.REMOVED
            assert each.due <= self.now
        if found:
            self._settle([(each, Purged()) for each in found])


@pytest.mark.parametrize("name", list(map(marked, EXAMPLES)))
def test_the_store_is_what_the_model_says(name: str) -> None:
    run(LedgerMachine, name, EXAMPLES)


@pytest.mark.parametrize("name", list(map(marked, OPERATED)))
def test_the_ledger_balances_while_operators_act(name: str) -> None:
    run(OperatedMachine, name, OPERATED)


def run(machine: type[LedgerMachine], name: str, runs: Mapping[str, tuple[int, int]]) -> None:
    make, restarts = HARNESSES[name]
    examples, steps = runs[name]
    run_state_machine_as_test(
        type(f"{name.title()}Ledger", (machine,), {"make": make, "restarts": restarts}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            phases=PHASES.get(name, FINDING),
            suppress_health_check=list(HealthCheck),
        ),
    )
