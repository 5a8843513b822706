"""The account of a real queue, at any moment, and what it says when something is wrong with the files."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mqcd.cli.pipeline.account import show
from mqcd.core.events import format_time
from mqcd.core.model import Area
from mqcd.core.progress import no_progress
from mqcd.pipeline.account.account import Account, account, fields
from mqcd.pipeline.batch.stream import Pace, Stream
from mqcd.pipeline.store.store import Commit, Store
from mqcd.pipeline.tables.named import Named
from tests.contract.harness import HOUR, MINUTE
from tests.contract.mail import bounced, deferred, delivered
from tests.fakes.clock import FakeClock
from tests.fakes.figures import account as even_account
from tests.pipeline.asking import table
from tests.pipeline.making import NOW, Log
from tests.unit.queue.support import Rig

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]


class Watched(Store):
    """Refuses to be read while a batch of another process could move its files."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.kept: list[str] = []

    @contextmanager
    def still(self) -> Iterator[None]:
        with super().still():
            self.kept.append("still")
            yield
            self.kept.remove("still")

    @contextmanager
    def writing(
        self, what: str = "a batch", *, patience: float = 0, stop: threading.Event | None = None
    ) -> Iterator[Commit]:
        assert not self.kept, "a writer waits for readers"
        with super().writing(what, patience=patience, stop=stop) as last:
            self.kept.append("writing")
            yield last
            self.kept.remove("writing")

    def files(self, name: str, days: Iterable[str] | None = None) -> list[str]:
        assert self.kept, f"{name} is read while others may move it"
        return super().files(name, days)


def accounted(spark: SparkSession, store: Store, rig: Rig, due_before: int = 0) -> Account:
    return account(
        spark,
        Watched(store.root),
        events=rig.root / "events",
        roots=(rig.queue, rig.spool),
        source=rig.options.source,
        progress=no_progress,
        now=NOW,
        due_before=due_before,
    )


def sums(found: Account) -> dict[str, Any]:
    return {name: value for name, value in asdict(found).items() if value}


async def busy(rig: Rig) -> None:
    """Mail that was delivered, mail that waits in clusters, mail that waits in the journal, a bounce."""
    post = rig.post
    for n in range(4):
        await post.send(f"d{n}@example.org")
    first, *others = await post.claim_all()
    await post.settle(delivered(), first)
    for each in others:
        await post.settle(deferred(rig.clock.now() + HOUR), each)
    await rig.evacuate()
    rig.clock.advance(MINUTE)
    await post.send("new@example.org", "newer@example.org", "bad@example.org")
    *_, bad = await post.claim_all()
    await post.settle(bounced(), bad)


def check_stuck(found: Account, rig: Rig) -> None:
    """All who wait and were due, the longest first, by name and with what was said to them last."""
    waiting = [each for each in rig.listed() if each.area in (Area.INCOMING, Area.DEFERRED)]
    due = {f"{each.spid:016X}/{each.qid}": each.due or each.envelope.received for each in waiting}
    assert found.stuck == len(found.overdue) == len(due) == 5
    assert {each.id: each.due for each in found.overdue} == due
    assert [each.due for each in found.overdue] == sorted(due.values())
    said = {each.recipient: (each.attempts, each.status) for each in found.overdue}
    assert said["new@example.org"] == (0, None)
    assert said["d1@example.org"] == (1, deferred(0).reply.status)
    told = fields(found)["overdue"]
    assert isinstance(told, list)
    assert told[0]["due"] == format_time(found.overdue[0].due or 0)


def test_the_account_names_stuck_and_doubtful_mail(capsys: pytest.CaptureFixture[str]) -> None:
    """The longest lists are cut; what strangers wrote does not move the cursor."""
    each = Named(
        id="0000000000000002/1",
        recipient="a\x1b[2J@site.example",
        site="site.example",
        accepted=None,
        due=1_763_464_020_000,
        attempts=4,
        status="4.7.1",
        reply="Greylisted",
    )
    maybe = {"duplicates": 1, "duplicated": ["A/1"], "possible_duplicates": 1, "possibly_duplicated": ["B/2"]}
    show(even_account(**maybe, stuck=1, overdue=[each]))
    said = capsys.readouterr().out
    assert "1 delivered after a connection that broke after the final dot\n" in said
    assert "maybe twice: A/1\nmaybe twice: B/2\n" in said
    assert said.endswith("due 2025-11-18T11:07:00.000Z, 4 attempts: 4.7.1 Greylisted\n")
    assert "stuck: 0000000000000002/1 to a" in said
    assert "\x1b" not in said
    show(even_account(stuck=1200, overdue=[each] * 1000))
    said = capsys.readouterr().out
    assert said.count("Greylisted") == 20
    assert said.endswith("stuck: 1200 in all; --json names 1000\n")


async def test_a_busy_queue_balances_and_a_deleted_line_is_named(
    spark: SparkSession, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before and after its segments are exported, and with the server stopped."""
    rig = await Rig(tmp_path / "q").open()
    began = rig.clock.now()
    await busy(rig)
    # As this node was called once, and one beside it, whose mail waits in a queue of its own.
    (past := Log("past")).deliver(began - HOUR)
    past.seal(rig.root / "events")
    (beside := Log("beside")).accept(began + 1)
    beside.seal(rig.root / "events")
    even = {"accepted": 8, "delivered": 2, "bounced": 1, "queued": 5, "others": ["beside"]}
    assert sums(accounted(spark, store, rig)) == even
    await rig.evacuate()
    await rig.close()
    now = rig.clock.now()
    found = accounted(spark, store, rig, due_before=now + 2 * HOUR)
    assert sums(replace(found, stuck=0, overdue=[])) == even
    check_stuck(found, rig)
    # What the queue holds stands in the table until something happens to that day's mail.
    found_in_it = {
        row["node"]: [row[name] for name in ("accepted", "delivered", "queued", "unfinished", "imbalance")]
        for row in table(store, "ledger")
    }
    assert found_in_it == {
        "past": [1, 1, 0, 0, 0],
        rig.options.source.node: [7, 1, 5, 5, 0],
        "beside": [1, 0, None, 1, None],
    }

    name = next(name for name in rig.clusters() if name.startswith("deferred"))
    path = rig.queue / name
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))
    lost = ["/".join(line.decode().split("|")[:2]) for line in lines[-2:]]

    found = accounted(spark, store, rig)

    assert found.imbalance == 2
    assert sorted(found.missing) == sorted(lost)
    assert found.excess == []

    # Put aside one is accounted for, and so is one whose line does not even say whose it was. What that
    # stands for besides, nobody knows.
    (rig.queue / "quarantine").mkdir(exist_ok=True)
    (rig.queue / "quarantine" / "a-1.bad").write_bytes(lines[-1].replace(b"example", b"damaged"))
    (rig.queue / "quarantine" / "b-1+3.bad").write_bytes(b"\0\0\0\0 nothing to be read\n")
    found = accounted(spark, store, rig)
    assert (found.imbalance, found.quarantined, found.missing, found.unread) == (0, 2, lost[:1], 2)
    show(found)
    assert "up to 2 unreadable records" in capsys.readouterr().out


async def test_an_account_is_made_beside_a_stream(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    """Whichever of the two takes a file, it is taken once."""
    rig = await Rig(tmp_path / "q").open()
    stop, taken = threading.Event(), list[Commit]()
    pace = Pace(every=100)
    with store.streaming():
        stream = Stream(spark, store, rig.root / "events", clock=FakeClock(NOW), pace=pace, done=taken.append)
        following = threading.Thread(target=stream.follow, args=(stop,))
        following.start()
        try:
            await busy(rig)
            await rig.evacuate()
            found = accounted(spark, store, rig)
            assert (found.accepted, found.imbalance, found.missing, found.excess) == (7, 0, [], [])
            await busy(rig)
            await rig.evacuate()
        finally:
            stop.set()
            following.join()
    await rig.close()
    last = accounted(spark, store, rig)
    assert (last.accepted, last.imbalance, last.doubled, last.damaged) == (14, 0, 0, 0)
    assert store.last().batch > len(taken)


async def test_the_source_gives_what_waits_and_takes_conditions(spark: SparkSession, tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q").open()
    await busy(rig)
    await rig.close()
    queue = spark.read.format("mqc").load(str(rig.queue))
    listed = {(f"{each.spid:016X}", each.qid): each for each in rig.listed()}
    rows = {(row["spid"], row["qid"]): row for row in queue.collect()}
    assert rows.keys() == listed.keys()
    for key, row in rows.items():
        assert (row["recipient"], row["area"], row["attempts"]) == (
            listed[key].address,
            str(listed[key].area),
            listed[key].attempts,
        )
    due = sorted(each.due for each in listed.values() if each.due)
    assert len(due) == 3
    for zone in ("UTC", "America/New_York"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            later = queue.where(
                (F.col("area") == "deferred") & (F.col("due") > F.timestamp_millis(F.lit(due[0])))
            )
            assert later.count() == sum(at > due[0] for at in due)
            now = F.timestamp_millis(F.lit(due[0]))
            assert queue.where(F.col("due") <= now).count() == sum(at <= due[0] for at in due)
            received = max(each.envelope.received for each in listed.values())
            early = queue.where(F.col("received") < F.timestamp_millis(F.lit(received)))
            assert early.count() == sum(each.envelope.received < received for each in listed.values())
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
    one = next(iter(listed))
    assert queue.where((F.col("spid") == one[0]) & (F.col("area") == "bounces")).count() in (0, 1)
    assert queue.where((F.col("area") == "held") & (F.col("area") == "deferred")).count() == 0
