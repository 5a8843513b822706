"""Segments that are small for what is asked of them: every call is done or refused, none goes on for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mqcd.core.model import Area, Envelope, Origin, Recipient, Reported, Settlement, Submission
from mqcd.core.smtp.reply import Refused
from mqcd.net.clock import SystemClock
from mqcd.queue.store import ClusterStore
from tests.contract.mail import bounced, deferred, delivered, read_all
from tests.crash.worker import SENDER, body_of, options
from tests.fakes.killed import copy_as_killed
from tests.fakes.observer import RecordingObserver

pytestmark = pytest.mark.crash


def _store(root: Path, segmentsize: int = 128 << 10, segments: int = 6) -> ClusterStore:
    return ClusterStore(options(root, segmentsize, segments), SystemClock(), RecordingObserver())


def _submission(store: ClusterStore, many: int, content: bytes, sender: str = SENDER) -> Submission:
    origin = Origin.SMTP if sender else Origin.REPORT
    envelope = Envelope(
        spid=store.reserve(many > 1), sender=sender, received=SystemClock().now(), origin=origin
    )
    addresses = [f"u{number}@example.org" for number in range(many)]
    return Submission(envelope=envelope, recipients=addresses, content=content)


async def _claim(store: ClusterStore, many: int) -> list[Recipient]:
    found: list[Recipient] = []
    while len(found) < many:
        found += await store.claim(many - len(found), SystemClock().now())
        # Nothing is handed out while the ring is nearly full: the checkpointer needs its turn.
        await asyncio.sleep(0)
    return found


async def test_more_verdicts_in_one_call_than_a_segment_holds(tmp_path: Path) -> None:
    store = _store(tmp_path)
    await store.open()
    await store.recovered()
    for _ in range(8):
        await store.enqueue(_submission(store, 150, b"Subject: x\r\n\r\n"))
    claimed = await _claim(store, 1200)
    due = SystemClock().now() + 1
    await store.settle([Settlement(recipient=each, verdict=deferred(due)) for each in claimed])
    assert store.stats()[Area.DEFERRED].recipients == 1200
    claimed = await _claim(store, 1200)
    await store.settle([Settlement(recipient=each, verdict=delivered()) for each in claimed])
    await store.close()
    store = _store(tmp_path)
    await store.open()
    await store.recovered()
    assert not any(area.recipients for area in store.stats().values())
    await store.close()


async def test_a_kill_may_cut_off_more_attempts_than_a_segment_holds(tmp_path: Path) -> None:
    store = _store(tmp_path / "a", 64 << 10, 12)
    await store.open()
    await store.recovered()
    for _ in range(8):
        await store.enqueue(_submission(store, 150, b"Subject: x\r\n\r\n"))
    claimed = await _claim(store, 1200)
    await store.begin(claimed, "example.org")
    copy_as_killed(tmp_path / "a", tmp_path / "b")
    await store.close()
    store = _store(tmp_path / "b", 64 << 10, 12)
    await store.open()
    await store.recovered()
    assert store.stats()[Area.DEFERRED].recipients == 1200
    claimed = await _claim(store, 1200)
    assert all(each.unknowns == 1 for each in claimed)
    await store.settle([Settlement(recipient=each, verdict=delivered()) for each in claimed])
    await store.close()


async def test_content_that_is_larger_than_a_frame_goes_to_the_spool(tmp_path: Path) -> None:
    store = _store(tmp_path)
    await store.open()
    await store.recovered()
    spid = store.reserve(several=False)
    envelope = Envelope(spid=spid, sender=SENDER, received=SystemClock().now())
    whole = body_of(spid, 200_000)
    await store.enqueue(Submission(envelope=envelope, recipients=["u@example.org"], content=whole))
    [claimed] = await _claim(store, 1)
    assert await read_all(await store.content(claimed)) == whole
    await store.settle([Settlement(recipient=claimed, verdict=delivered())])
    await store.close()


async def test_a_report_larger_than_a_segment_is_all_or_nothing(tmp_path: Path) -> None:
    store = _store(tmp_path)
    await store.open()
    await store.recovered()
    await store.enqueue(_submission(store, 1, b"Subject: x\r\n\r\n"))
    await store.settle([Settlement(recipient=(await _claim(store, 1))[0], verdict=bounced())])
    [bounce] = await store.claim_bounces(5)
    report = _submission(store, 1, bytes(200_000), sender="")
    told = Settlement(recipient=bounce, verdict=Reported(report_spid=report.envelope.spid))
    taken = True
    try:
        await store.settle([told], [report])
    except Refused:
        taken = False
    assert store.stats()[Area.BOUNCES].recipients == (not taken)
    assert store.stats()[Area.INCOMING].recipients == taken
    if not taken:
        await store.park([bounce], 0)
        assert await store.claim_bounces(5)
    await store.close()
