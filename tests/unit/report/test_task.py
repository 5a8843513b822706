"""The reporting task on the memory store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from email import policy
from email.parser import BytesParser
from pathlib import Path

import pytest

from mqcd.config.settings import ReportSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Area, Body, Origin, Recipient, Settlement, Submission
from mqcd.core.ports import Content
from mqcd.daemon.derived import report_of
from mqcd.report import task
from mqcd.report.task import FULL_AT_ONCE, GATHER_MS, HELD, LATER_MS, RETRY_MS, ReportTask
from tests.contract.mail import BODY, Post, bounced
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore
from tests.unit.daemon.support import settings_of, write_conf

SETTINGS = ReportSettings(announcemta="mail.example.net", ndr_from="postmaster@example.net")


class FailingStore(MemoryStore):
    """A memory store that cannot do what its test says, for as long as it says."""

    def __init__(self, clock: FakeClock, observer: RecordingObserver) -> None:
        super().__init__(clock, observer)
        self.broken: set[str] = set()
        self.faulty = ""
        """The method that raises what nobody expects."""
        self.most = sys.maxsize
        """What one claim gives at most."""
        self.rooms: set[int] = set()
        """For how many bounces it was asked at once."""
        self.claiming: Callable[[], None] = lambda: None
        """Called by each claim."""
        self.under_way = self.most_under_way = 0
        """Reports between the reading of their message and their record."""

    async def claim_bounces(self, room: int) -> Sequence[Recipient]:
        self._fail("claim_bounces")
        self.rooms.add(room)
        self.claiming()
        return await super().claim_bounces(min(room, self.most))

    def settle(
        self, settlements: Sequence[Settlement], submissions: Sequence[Submission] = ()
    ) -> Awaitable[None]:
        if submissions:
            self._fail("settle")
            self.under_way -= 1
        return super().settle(settlements, submissions)

    def park(self, recipients: Sequence[Recipient], until: int) -> Awaitable[None]:
        self._fail("park")
        return super().park(recipients, until)

    async def content(self, recipient: Recipient) -> Content:
        self._fail("content")
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        return await super().content(recipient)

    def _fail(self, method: str) -> None:
        if method == self.faulty:
            raise RuntimeError("a fault")
        if method in self.broken:
            raise StoreUnavailable("no space left on device")


class Bench:
    """A task at work beside a store."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.observer = RecordingObserver()
        self.store = FailingStore(self.clock, self.observer)
        self.post = Post(self.store, self.clock)
        self.ours = True
        """Whether all clients are trusted."""
        self.task = ReportTask(self.store, self.clock, SETTINGS, lambda _: self.ours)
        self.running: asyncio.Task[None] | None = None

    async def start(self, settings: ReportSettings = SETTINGS) -> None:
        self.task.reload(settings)
        await self.store.open()
        self.running = asyncio.ensure_future(self.task.run())

    async def bounce(self, *addresses: str, content: bytes = BODY, sender: str = "s@example.com") -> None:
        """A message of which every recipient has bounced, before the task wakes."""
        await self.post.send(*addresses, content=content, sender=sender)
        await self.post.settle(bounced(), *await self.post.claim_all())

    async def reported(self, *addresses: str) -> None:
        """A message of which every recipient has bounced, and the task has had its time."""
        await self.bounce(*addresses)
        await self.pass_time()

    async def pass_time(self, ms: int = GATHER_MS) -> None:
        await self.clock.run_for(ms, turns=30)

    async def reports(self) -> list[Recipient]:
        return [each for each in (await self.post.scan()).values() if each.area is Area.INCOMING]

    async def stop(self) -> None:
        self.task.stop()
        if self.running is not None:
            await self.running


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.stop()


async def test_a_bounce_becomes_a_report_to_its_sender(bench: Bench) -> None:
    await bench.start()
    await bench.reported("a@example.org")
    [report] = await bench.reports()
    assert (report.address, report.envelope.sender) == ("s@example.com", "")
    assert (report.envelope.origin, report.envelope.received) == (Origin.REPORT, bench.clock.now())
    assert (report.envelope.body, report.envelope.smtputf8) == (Body.SEVEN, False)
    message = BytesParser(policy=policy.default).parsebytes(await bench.post.read(report))
    assert message["To"] == "s@example.com"
    assert message["From"] == "postmaster@example.net"
    assert "a@example.org" in str(message)
    assert "A body." in str(message)
    assert bench.store.stats()[Area.BOUNCES].recipients == 0
    [heard] = bench.observer.of(Verb.REPORTED)
    assert heard.report_spid == report.spid


async def test_bounces_from_before_the_start_are_reported(bench: Bench) -> None:
    await bench.store.open()
    await bench.bounce("a@example.org")
    await bench.start()
    await bench.pass_time()
    assert len(await bench.reports()) == 1


async def test_bounces_of_one_message_share_a_report(bench: Bench) -> None:
    await bench.start()
    await bench.bounce("a@example.org", "b@example.org")
    await bench.bounce("c@example.org")
    await bench.pass_time()
    reports = await bench.reports()
    contents = [await bench.post.read(each) for each in reports]
    assert sorted(content.count(b"Final-Recipient") for content in contents) == [1, 2]
    assert bench.observer.count(Verb.REPORTED) == 3


def named(content: bytes) -> int:
    """How many recipients a report tells of."""
    return content.count(b"Final-Recipient")


async def test_all_bounces_of_a_message_are_one_report(bench: Bench) -> None:
    await bench.start(replace(SETTINGS, attachmsg_full=300_000))
    bench.ours = False
    addresses = [f"r{n}@example.org" for n in range(2000)]
    body = b"Subject: spam\r\n\r\n" + b"x" * 70 + b"\r\n" + b"y\r\n" * 100_000
    submission = bench.post.submission(*addresses, content=body)
    await bench.store.enqueue(replace(submission, envelope=replace(submission.envelope, dsn="RET=FULL")))
    await bench.post.settle(bounced(), *await bench.post.claim_all())
    await bench.pass_time(3 * LATER_MS)
    [report] = await bench.reports()
    assert named(await bench.post.read(report)) == 2000
    assert report.size < 2 * len(body)
    assert bench.observer.count(Verb.REPORTED) == 2000


async def test_later_bounces_of_a_message_share_the_next_report(bench: Bench) -> None:
    async def reported() -> list[int]:
        reports = [each for each in await bench.reports() if each.is_report]
        return sorted([named(await bench.post.read(each)) for each in reports])

    await bench.start()
    await bench.post.send(*[f"r{n}@example.org" for n in range(5)])
    await bench.post.send("other@example.org")
    *recipients, last, other = await bench.post.claim_all()
    for recipient in recipients:
        await bench.post.settle(bounced(), recipient)
        await bench.pass_time(LATER_MS // 10)
    assert await reported() == [1]
    # Another message need not wait.
    await bench.post.settle(bounced(), other)
    await bench.pass_time()
    assert await reported() == [1, 1]
    await bench.pass_time(LATER_MS)
    assert await reported() == [1, 1, 3]
    await bench.pass_time(LATER_MS)
    await bench.post.settle(bounced(), last)
    await bench.pass_time()
    assert await reported() == [1, 1, 1, 3]


async def test_a_stop_gives_back_what_is_gathered(bench: Bench) -> None:
    await bench.start()
    await bench.post.send("a@example.org", "b@example.org")
    recipients = await bench.post.claim_all()
    for recipient in recipients:
        await bench.post.settle(bounced(), recipient)
        await bench.pass_time()
    assert bench.store.in_flight(recipients[1])
    await bench.stop()
    assert not bench.store.in_flight(recipients[1])
    assert bench.observer.count(Verb.REPORTED) == 1


async def test_bounces_that_are_gathered_are_bounded(bench: Bench) -> None:
    await bench.start(replace(SETTINGS, queuecache=1000))
    await bench.post.send(*[f"r{n}@example.org" for n in range(HELD + 2001)])
    recipients = await bench.post.claim_all()
    await bench.post.settle(bounced(), recipients[0])
    await bench.pass_time()
    await bench.post.settle(bounced(), *recipients[1:])
    await bench.pass_time()
    counts = [named(await bench.post.read(each)) for each in await bench.reports()]
    assert sorted(counts) == [1, HELD]
    await bench.pass_time(2 * LATER_MS)
    assert bench.observer.count(Verb.REPORTED) == len(recipients)


async def test_bounces_of_many_gathered_messages_are_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "HELD", 6)
    await bench.start(replace(SETTINGS, queuecache=3))
    for n in range(20):
        await bench.post.send(f"a{n}@example.org", f"b{n}@example.org")
    recipients = await bench.post.claim_all()
    await bench.post.settle(bounced(), *recipients[::2])
    await bench.pass_time()
    assert bench.observer.count(Verb.REPORTED) == 20
    await bench.post.settle(bounced(), *recipients[1::2])
    await bench.pass_time()
    assert 0 < sum(map(bench.store.in_flight, recipients)) <= 6
    await bench.pass_time(LATER_MS)
    assert bench.observer.count(Verb.REPORTED) == 40


async def test_nearly_full_memory_leaves_room_for_whole_claims(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "HELD", 6)
    await bench.start(replace(SETTINGS, queuecache=3))
    await bench.post.send(*[f"r{n}@example.org" for n in range(6)])
    recipients = await bench.post.claim_all()
    await bench.post.settle(bounced(), recipients[0])
    await bench.pass_time()
    await bench.post.settle(bounced(), *recipients[1:])
    await bench.pass_time()
    for n in range(9):
        await bench.bounce(f"s{n}@example.org")
    await bench.pass_time()
    assert bench.observer.count(Verb.REPORTED) == 15


async def test_a_message_stays_gathered_where_others_make_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "HELD", 6)
    await bench.start(replace(SETTINGS, queuecache=3))
    await bench.post.send("a@example.org", "b@example.org")
    first, second = await bench.post.claim_all()
    await bench.post.settle(bounced(), first)
    await bench.pass_time()
    await bench.post.settle(bounced(), second)
    await bench.pass_time()
    for n in range(9):
        await bench.bounce(f"s{n}@example.org")
    await bench.pass_time()
    assert bench.observer.count(Verb.REPORTED) == 10
    assert bench.store.in_flight(second)


async def test_a_pause_during_a_claim_begins_no_report(bench: Bench) -> None:
    await bench.start()
    bench.store.claiming = lambda: bench.task.halt(True)
    await bench.reported("a@example.org")
    assert (bench.store.rooms != set(), await bench.reports()) == (True, [])
    bench.store.claiming = lambda: None
    bench.task.halt(False)
    await bench.pass_time()
    assert len(await bench.reports()) == 1


async def test_more_bounces_than_fit_into_memory_at_once(bench: Bench) -> None:
    await bench.start(replace(SETTINGS, queuecache=3))
    for n in range(10):
        await bench.bounce(f"r{n}@example.org")
    await bench.pass_time()
    assert len(await bench.reports()) == 10
    assert bench.store.rooms == {3}


async def test_a_claim_that_gives_fewer_than_queuecache_is_not_the_last(bench: Bench, tmp_path: Path) -> None:
    settings = settings_of(write_conf(tmp_path, queue="<maxmemoryqueue>2</maxmemoryqueue>"))
    bench.store.most = settings.queue.maxmemoryqueue
    await bench.start(report_of(settings))
    await bench.bounce(*(f"r{n}@example.org" for n in range(7)))
    await bench.pass_time()
    [report] = await bench.reports()
    assert named(await bench.post.read(report)) == 7


async def test_reports_may_be_switched_off(bench: Bench) -> None:
    await bench.start(replace(SETTINGS, generate_ndr=False))
    await bench.reported("a@example.org", "b@example.org")
    assert await bench.post.scan() == {}
    assert {each.reason for each in bench.observer.of(Verb.DISCARDED)} == {"generate_ndr"}


@pytest.mark.parametrize(
    ("redirect", "additional", "readers"),
    [
        ("boss@example.com", (), ["boss@example.com"]),
        (None, ("x@example.com", "s@example.com"), ["s@example.com", "x@example.com"]),
        (".", ("x@example.com",), ["x@example.com"]),
        ("boss@example.com", ("x@example.com",), ["boss@example.com", "x@example.com"]),
    ],
)
async def test_reports_go_where_the_settings_say(
    bench: Bench, redirect: str | None, additional: tuple[str, ...], readers: list[str]
) -> None:
    settings = replace(SETTINGS, ndr_recip_redirect=redirect, ndr_recips_additional=additional)
    await bench.start(settings)
    await bench.reported("a@example.org")
    reports = sorted(await bench.reports(), key=lambda each: each.qid)
    assert [each.address for each in reports] == readers
    assert f"To: <{readers[0]}>\r\n".encode() in await bench.post.read(reports[0])


async def test_reports_to_nobody_are_discarded(bench: Bench) -> None:
    await bench.start(replace(SETTINGS, ndr_recip_redirect="."))
    await bench.reported("a@example.org")
    assert await bench.post.scan() == {}
    assert [each.reason for each in bench.observer.of(Verb.DISCARDED)] == ["ndr_recip_redirect"]


async def test_who_does_not_want_to_hear_is_not_told(bench: Bench) -> None:
    await bench.start()
    submission = bench.post.submission(
        "a@example.org", "b@example.org", dsn=["NOTIFY=NEVER", "NOTIFY=FAILURE"]
    )
    await bench.store.enqueue(submission)
    await bench.post.settle(bounced(), *await bench.post.claim_all())
    await bench.pass_time()
    [report] = await bench.reports()
    content = await bench.post.read(report)
    assert b"b@example.org" in content
    assert b"a@example.org" not in content
    assert [each.reason for each in bench.observer.of(Verb.DISCARDED)] == ["notify"]


async def test_a_big_message_comes_back_in_part(bench: Bench) -> None:
    await bench.start(replace(SETTINGS, attachmsg=200_000))
    await bench.bounce("a@example.org", content=b"Subject: big\r\n\r\n" + b"x" * 76 * 10_000)
    await bench.bounce("b@example.org", content=b"Subject: lines\r\n\r\n" + b"y" * 50 + b"\r\n" * 150_000)
    await bench.pass_time()
    sizes = [each.size for each in await bench.reports()]
    assert all(size < 210_000 for size in sizes)
    assert max(sizes) > 200_000


@pytest.mark.parametrize(("ret", "whole"), [("RET=FULL", True), ("ret=full", True), ("", False)])
async def test_all_of_a_message_comes_back_to_who_asked_for_it(bench: Bench, ret: str, whole: bool) -> None:
    await bench.start(replace(SETTINGS, attachmsg=2000, attachmsg_full=20_000))
    for size in (10_000, 30_000):
        content = b"Subject: long\r\n\r\n" + b"lines of text\r\n" * (size // 15)
        submission = bench.post.submission("a@example.org", content=content)
        await bench.store.enqueue(replace(submission, envelope=replace(submission.envelope, dsn=ret)))
    await bench.post.settle(bounced(), *await bench.post.claim_all())
    await bench.pass_time()
    texts = [await bench.post.read(each) for each in await bench.reports()]
    assert sorted(b"The beginning of the message" in text for text in texts) == [not whole, True]
    assert (max(map(len, texts)) > 20_000) is whole


@pytest.mark.parametrize("ret", ["RET=FULL", "RET=HDRS", ""])
@pytest.mark.parametrize("redirect", [None, "boss@example.com"])
async def test_a_client_not_trusted_gets_headers_alone(bench: Bench, ret: str, redirect: str | None) -> None:
    await bench.start(replace(SETTINGS, attachmsg_full=20_000, ndr_recip_redirect=redirect))
    bench.ours = False
    submission = bench.post.submission("a@example.org", content=b"Subject: long\r\n\r\n" + b"spam\r\n" * 3000)
    await bench.store.enqueue(replace(submission, envelope=replace(submission.envelope, dsn=ret)))
    await bench.post.settle(bounced(), *await bench.post.claim_all())
    await bench.pass_time()
    [report] = await bench.reports()
    text = await bench.post.read(report)
    assert b"Subject: long" in text
    assert (b"spam" in text) is (redirect is not None and ret != "RET=HDRS")


async def test_much_that_comes_back_is_not_in_memory_all_at_once(bench: Bench) -> None:
    await bench.start(replace(SETTINGS, attachmsg_full=20_000))
    for _ in range(3 * FULL_AT_ONCE):
        submission = bench.post.submission("a@example.org")
        envelope = replace(submission.envelope, dsn="RET=FULL")
        await bench.store.enqueue(replace(submission, envelope=envelope))
    await bench.post.settle(bounced(), *await bench.post.claim_all())
    await bench.pass_time()
    assert len(await bench.reports()) == 3 * FULL_AT_ONCE
    assert bench.store.most_under_way == FULL_AT_ONCE


async def test_nothing_comes_back_when_so_set(bench: Bench) -> None:
    await bench.start(replace(SETTINGS, attachmsg=0))
    await bench.reported("a@example.org")
    [report] = await bench.reports()
    assert b"message/rfc822" not in await bench.post.read(report)


async def test_senders_beyond_ascii_get_reports_that_say_so(bench: Bench) -> None:
    await bench.start()
    await bench.bounce("a@example.org", sender="ß@example.com")
    await bench.pass_time()
    [report] = await bench.reports()
    assert (report.envelope.body, report.envelope.smtputf8) == (Body.EIGHT, True)


async def test_a_report_without_its_message_is_better_than_none(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.start()
    bench.store.broken = {"content"}
    await bench.reported("a@example.org")
    bench.store.broken = set()
    [report] = await bench.reports()
    assert b"message/rfc822" not in await bench.post.read(report)
    assert "no space left on device" in caplog.text


@pytest.mark.parametrize("method", ["settle", "claim_bounces"])
async def test_what_cannot_be_recorded_is_tried_again(
    bench: Bench, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    await bench.start()
    bench.store.broken = {method}
    await bench.bounce("a@example.org")
    await bench.pass_time(3 * RETRY_MS)
    assert "no space left on device" in caplog.text
    assert bench.store.stats()[Area.BOUNCES].recipients == 1
    assert bench.observer.count(Verb.REPORTED) == 0
    bench.store.broken = set()
    await bench.pass_time(RETRY_MS)
    assert len(await bench.reports()) == 1
    assert bench.store.stats()[Area.BOUNCES].recipients == 0


async def test_one_failing_report_holds_up_no_other(bench: Bench) -> None:
    full = MemoryStore(bench.clock, bench.observer, max_octets=4000)
    task = ReportTask(full, bench.clock, SETTINGS, lambda _: True)
    await full.open()
    running = asyncio.ensure_future(task.run())
    post = Post(full, bench.clock)
    await post.send("a@example.org", content=b"Subject: x\r\n\r\n" + b"x\r\n" * 600)
    await post.send("b@example.org")
    await post.settle(bounced(), *await post.claim_all())
    await bench.pass_time()
    areas = {each.address: each.area for each in (await post.scan()).values()}
    assert areas == {"a@example.org": Area.BOUNCES, "sender@example.com": Area.INCOMING}
    task.stop()
    await running


async def test_a_stop_gives_back_what_is_held(bench: Bench) -> None:
    await bench.start()
    bench.store.broken = {"settle"}
    await bench.reported("a@example.org")
    [bounce] = (await bench.post.scan()).values()
    assert bench.store.in_flight(bounce)
    await bench.stop()
    assert not bench.store.in_flight(bounce)


async def test_a_stop_does_not_wait_for_a_store_that_cannot_record(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.start()
    bench.store.broken = {"settle", "park"}
    await bench.reported("a@example.org")
    await bench.stop()
    assert "1 bounces are left" in caplog.text


async def test_a_stop_before_anything_happened(bench: Bench) -> None:
    await bench.start()
    await bench.stop()
    assert bench.observer.heard == []


async def test_a_fault_of_one_report_does_not_end_the_task(bench: Bench) -> None:
    await bench.start()
    bench.store.faulty = "content"
    await bench.reported("a@example.org")
    bench.store.faulty = ""
    await bench.bounce("b@example.org")
    await bench.pass_time()
    assert len(await bench.reports()) == 1
    await bench.pass_time(LATER_MS + GATHER_MS)
    assert len(await bench.reports()) == 2


@pytest.mark.parametrize("method", ["readers", "returns_all"])
async def test_a_fault_before_a_report_is_made_loses_no_bounce(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fault(_: object) -> bool:
        raise RuntimeError("a fault")

    await bench.start()
    with monkeypatch.context() as broken:
        broken.setattr(bench.task.maker, method, fault)
        await bench.reported("a@example.org")
    assert not await bench.reports()
    await bench.pass_time(LATER_MS + GATHER_MS)
    assert len(await bench.reports()) == 1


async def test_a_fault_of_the_store_does_not_end_the_task(bench: Bench) -> None:
    await bench.start()
    bench.store.faulty = "claim_bounces"
    await bench.bounce("a@example.org")
    await bench.pass_time(3 * RETRY_MS)
    bench.store.faulty = ""
    await bench.pass_time(RETRY_MS + GATHER_MS)
    assert len(await bench.reports()) == 1


async def test_faults_of_all_reports_stop_the_claiming(bench: Bench) -> None:
    await bench.start()
    bench.store.faulty = "content"
    addresses = [f"to{number}@example.org" for number in range(HELD)]
    await bench.bounce(*addresses)
    await bench.bounce("late@example.org")
    await bench.pass_time(10 * RETRY_MS)
    bench.store.faulty = ""
    await bench.pass_time(LATER_MS + RETRY_MS)
    assert len(await bench.reports()) == 2
