"""The report: its figures on a real Spark, its page in a real browser, and both at the end of the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqcd.core.progress import no_progress
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source
from mqcd.pipeline.batch.run import run
from mqcd.pipeline.report.figures import TOP
from mqcd.pipeline.report.gather import gather, last_days
from mqcd.pipeline.report.make import Subject, make, write
from mqcd.pipeline.report.page import page
from mqcd.pipeline.store.store import Store
from mqcd.pipeline.tables.named import TEXT
from tests.e2e.kit.hostile import hostile_directory, imported_from, script
from tests.fakes.figures import figures
from tests.pipeline.asking import ask
from tests.pipeline.browser import look, screenshot
from tests.pipeline.making import HOUR, MINUTE, NOW, T0, Log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MQCD = [sys.executable, "-m", "mqcd"]
NASTY = '</script><script>alert(1)</script><img src="http://there.example/x" onerror="alert(2)">\u202egnp.exe'
SITES = 60
LONG = "s" * TEXT
"""Beyond it the report shows nothing of a sender."""


def busy(events: Path) -> None:
    """Many sites and one that refuses, over two days; one recipient is stuck, one had mail twice."""
    log = Log()
    for n in range(SITES):
        for again in range(1 + (n == 0)):
            log.deliver(T0 + n * 20 * MINUTE + again, f"a@s{n:02d}.example")
    for n in range(3):
        refused = log.accept(T0 + n * HOUR, f'"{NASTY}"@hostile.example', sender=f'"{NASTY}"@here.example')
        log.attempt(refused, T0 + n * HOUR + 1)
        log.verdict(refused, "bounced", T0 + n * HOUR + 2, reply=f"{NASTY} {n}", tls=None)
    stuck = log.accept(T0, "stuck@s01.example", sender=f"{LONG}1@here.example")
    log.verdict(stuck, "deferred", T0 + 5, due="2025-11-18T11:30:00.000Z")
    twice = log.accept(T0, "twice@s02.example", sender=f"{LONG}2@here.example")
    log.add("outcome-unknown", T0 + 6, **twice, attempt=1, destination="s02.example")
    log.verdict(twice, "delivered", T0 + HOUR, 2)
    log.seal(events)
    log.segment += 1  # A file is lost.
    log.deliver(T0 + 26 * HOUR)
    path = log.seal(events)
    path.write_bytes(path.read_bytes()[:-12])


@pytest.mark.needs("java")
def test_figures_are_those_of_the_log_and_bounded(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    events = tmp_path / "events"
    busy(events)
    run(spark, store, events, now=NOW)

    found = gather(spark, store, events, days=30, made=T0 + 27 * HOUR)

    # Each site once and one of them twice, and who had mail twice; the last one's delivery is torn off.
    delivered = SITES + 1 + 1
    assert found.accepted == delivered + 3 + 1 + 1
    total = found.total
    assert (total.attempts, total.delivered) == (delivered + 4, delivered)
    assert (total.deferred, total.bounced) == (1, 3)
    assert (total.first_attempts, total.first_delivered) == (delivered + 3, delivered - 1)
    assert total.tls == delivered + 1
    assert total.latency == (100, 100, 100)
    assert (len(found.sites.rows), found.sites.total) == (TOP, SITES + 1)
    worst = [(site.name, site.tried.deferred, site.tried.bounced) for site in found.worst]
    assert worst == [("hostile.example", 0, 3), ("s01.example", 1, 0)]
    last = found.worst[0].last
    assert last is not None
    assert last.text == f"{NASTY} 2"
    assert sum(moment.accepted for moment in found.moments) == found.accepted
    assert {b.at - a.at for a, b in zip(found.moments, found.moments[1:], strict=False)} == {found.width}
    assert [(each.kind, each.count) for each in found.classes] == [("policy", 4)]
    assert found.refusals == 4
    assert [each.recipient for each in found.stuck.rows] == ["stuck@s01.example"]
    assert [each.recipient for each in found.duplicates.rows] == ["twice@s02.example"]
    assert found.senders.total == len(found.senders.rows) == 3
    assert found.coverage.gaps == ("n1-0-0000000002",)
    assert found.coverage.damage == (("gzip: the file ends early", 1),)
    assert (found.coverage.nodes, found.coverage.files, found.coverage.batch) == (("n1",), 2, 1)
    waiting = [sum(each.recipients.values()) for each in found.waiting]
    assert waiting[-1] == 2
    assert len(found.moments) <= 170
    assert len(page(found)) < 300_000

    # The newest day alone.
    newest = gather(spark, store, events, days=1, made=T0 + 27 * HOUR, overdue_ms=0)
    assert newest.accepted == 1 + sum(T0 + n * 20 * MINUTE >= 1_763_510_400_000 for n in range(SITES))
    assert newest.stuck.total == 0


@pytest.mark.needs("java")
def test_lasting_trouble_needs_attention_greylisting_not(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    log, events = Log(), tmp_path / "events"
    day = 24 * HOUR
    for n in range(30):
        late = log.accept(T0 + n, f"a{n}@grey.example")
        log.verdict(late, "deferred", T0 + MINUTE + n, reply="Greylisted, try again later")
        log.verdict(late, "delivered", T0 + HOUR + n, 2)
    for n in range(4):
        log.verdict(log.accept(T0 + n, f"b{n}@dead.example"), "bounced", T0 + MINUTE + n)
        log.deliver(T0 + n, f"c{n}@dead.example")
        before = log.accept(T0 - 3 * day + n, f"d{n}@dead.example")
        log.verdict(before, "delivered" if n else "bounced", T0 - 3 * day + MINUTE)
    for n in range(2):
        off = log.accept(T0 + n, f"e{n}@gone.example")
        log.verdict(off, "deferred", T0 + MINUTE + n, code=None, status="4.4.1", reply="Timed out")
        waits = log.accept(T0 + n, f"f{n}@grey.example")
        log.verdict(waits, "deferred", T0 + MINUTE + n, reply="Greylisted, try again later")
    log.seal(events)
    run(spark, store, events, now=NOW)

    found = gather(spark, store, events, days=2, made=T0 + day).troubled

    told = [(row.site, row.lost, row.waiting, row.recipients, row.before, row.cause) for row in found.rows]
    assert told == [
        ("dead.example", 4, 0, 8, (1, 4), "no-such-user"),
        ("gone.example", 0, 2, 2, (0, 0), "connection"),
    ]
    assert found.total == 2
    assert found.rows[0].last.text == "User unknown"
    alone = gather(spark, store, events, days=4, made=T0 + day).troubled
    assert [row.before for row in alone.rows] == [None, None]


def test_a_clock_that_once_ran_ahead_hides_nothing(store: Store) -> None:
    days = ["2025-10-01", "2025-11-17", "2025-11-18", "2025-11-19", "2071-01-01"]

    def shown(*of: str) -> list[str]:
        for day in of:
            path = store.table("events") / f"day={day}" / "x.parquet"
            path.parent.mkdir(parents=True)
            path.touch()
        return last_days(store, 30, T0)

    assert shown() == []
    assert shown(days.pop()) == ["2071-01-01"]
    assert shown(*days) == days[1:]


@pytest.mark.needs("java")
def test_a_report_needs_neither_queue_nor_lock(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    subject = Subject(
        events=tmp_path / "events",
        roots=(tmp_path / "queue", tmp_path / "spool"),
        source=Source(node="n1", shard=0),
    )
    nothing = make(spark, store, subject, made=T0, progress=no_progress)
    assert (nothing.coverage.since, nothing.account) == (None, None)
    assert "there is no queue in" in nothing.coverage.unasked

    busy(subject.events)
    with store.writing():
        locked = make(spark, Store(store.root, patience=0.1), subject, made=T0, progress=no_progress)
    assert "another process" in locked.coverage.unasked
    assert write(locked, tmp_path / "r.html") == (tmp_path / "r.html").stat().st_size
    assert [path.name for path in tmp_path.glob("r.html*")] == ["r.html"]


class Contended(Disk):
    """Each time that the tables are wanted somebody else has them, and is done when they are wanted again."""

    def __init__(self) -> None:
        self.held = False

    def lock(self, fd: int, *, exclusive: bool) -> bool:
        self.held = not self.held
        return not self.held and super().lock(fd, exclusive=exclusive)


@pytest.mark.needs("java")
@pytest.mark.parametrize(
    ("queue", "why"),
    [("gone", "there is no queue in"), ("sick", "the queue cannot be read: [Errno 40] Is a symbolic link")],
)
def test_a_report_without_account_waits_for_the_tables(
    spark: SparkSession, store: Store, tmp_path: Path, queue: str, why: str
) -> None:
    (tmp_path / "sick").mkdir()
    (tmp_path / "sick/pin").symlink_to("pin")
    events = tmp_path / "events"
    log = Log()
    log.deliver(T0)
    log.seal(events)
    subject = Subject(
        events=events, roots=(tmp_path / queue, tmp_path / "spool"), source=Source(node="n1", shard=0)
    )
    found = make(spark, Store(store.root, Contended()), subject, made=T0 + HOUR, progress=no_progress)
    assert found.account is None
    assert found.coverage.unasked.startswith(why)
    assert (found.coverage.batch, found.total.delivered) == (1, 1)


@pytest.mark.needs("chromium")
def test_a_browser_shows_it_without_a_request_or_a_complaint(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write(figures(NASTY), target)
    seen = look(target, tmp_path)
    assert (seen.console, seen.requests) == ([], [])
    assert seen.document.count("<svg") == 5
    assert "<script" not in seen.document
    assert "<img" not in seen.document
    assert "[U+202E]gnp.exe" in seen.document
    for width in (1280, 390):
        assert screenshot(target, tmp_path / "shot.png", width=width, height=2000) == (width, 2000)

    # What would have been seen.
    target.write_text('<script>console.error("x")</script><img src="http://there.example/x">')
    seen = look(target, tmp_path)
    assert (len(seen.console) > 0, seen.requests) == (True, ["http://there.example/x"])


@pytest.mark.needs("java")
def test_the_demo_ends_with_a_report_of_itself(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And neither it nor what Spark starts takes a module from the working directory."""
    kept, hostile = tmp_path / "kept", hostile_directory(tmp_path)
    played = subprocess.run(
        [script("mqcd"), "demo", "--pipeline", "--keep", str(kept)],
        capture_output=True, text=True, check=False, cwd=hostile, timeout=500,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout + played.stderr
    assert imported_from(hostile) == []
    said = " ".join(played.stdout.split())
    assert "All 10 recipients" in said
    assert "10 accepted, 8 delivered, 3 deferrals, 1 bounced, 0 expired" in said
    assert "10 recipients of 10" in said
    assert str(kept / "report.html") in played.stdout.replace("\n", "")
    made = (kept / "report.html").read_text()
    assert "Nobody has time for you" in made

    monkeypatch.chdir(tmp_path)
    code, fields = ask(kept / "conf" / "mqcd.xml", kept / "var", "report", "--out", "again.html")
    assert code == 0
    assert (fields["file"], fields["octets"]) == ("again.html", (tmp_path / "again.html").stat().st_size)
    assert (fields["accepted"], fields["delivered"], fields["imbalance"]) == (10, 8, 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["demo", "--pipeline"], "holds no bin/java"),
        (["-c", "mqcd.xml", "pipeline", "report", "--out", "r.html"], "holds no bin/java"),
        (["-c", "mqcd.xml", "pipeline", "report", "--out", "no/r.html"], "no is no directory"),
        # Not of Java: that is looked for when Spark starts.
        (["-c", "mqcd.xml", "pipeline", "ledger"], "holds no queue"),
    ],
)
def test_what_is_missing_is_reported_before_work_begins(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "mqcd.xml").write_text("<mailserver/>")
    tried = subprocess.run(
        [*MQCD, *words], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60,
        env={**os.environ, "JAVA_HOME": str(tmp_path / "gone")},
    )  # fmt: skip
    assert tried.returncode != 0
    assert said in tried.stderr
    assert not (tmp_path / "r.html").exists()
