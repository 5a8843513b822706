"""An import from source to delivery: what comes out of the queue, and what a failure or a kill leaves."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.errors import StoreBusy, StoreUnavailable
from mqcd.core.model import Area, Recipient
from mqcd.core.progress import no_progress
from mqcd.core.queueing.spid import SILOS, is_several, silo_of
from mqcd.core.smtp.marks import Marks
from mqcd.disk.durable import Disk
from mqcd.queue.admin.findings import Kind
from mqcd.queue.admin.ownership import owned
from mqcd.queue.admin.transfer import admission
from mqcd.queue.admin.transfer.admission import admit
from mqcd.queue.recovery.imports import pending_events
from tests.contract.mail import delivered
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver
from tests.fakes.workers import LocalWorkers
from tests.unit.queue.admin.kit import look, mend, state_of
from tests.unit.queue.admin.trees import (
    CONTENT,
    Made,
    bring,
    image,
    job,
    made,
    read,
    record,
    submitted,
    unpack,
)
from tests.unit.queue.support import Rig

AFTER_SAMPLES = 1_795_190_000_000
"""The samples' deferrals are due."""


def stopped(tmp_path: Path, now: int = START_MS) -> Rig:
    """A queue that is not there yet."""
    return Rig(tmp_path / "q", FakeClock(now))


async def everything(rig: Rig) -> list[tuple[Recipient, bytes]]:
    """Open the queue and claim all of it, mail and bounces, each with its content."""
    store = await rig.open()
    claimed = await store.post.claim_all() + await store.post.claim_bounces()
    return [(each, await store.post.read(each)) for each in claimed]


def wanted(sample: Path) -> dict[str, dict[str, Any]]:
    """By old SPID: what was submitted."""
    return {line["final"].split()[-1]: line for line in submitted(sample)}


async def test_the_first_sample_comes_out_as_it_was_submitted(tmp_path: Path) -> None:
    sample = unpack("incoming", tmp_path)
    before = image(sample)
    rig = stopped(tmp_path, AFTER_SAMPLES)
    outcome = await bring(rig, sample / "var")
    assert (outcome.tree.found, outcome.imported, outcome.tree.skipped, outcome.tree.damaged) == (
        107, 107, 0, 0,
    )  # fmt: skip
    assert outcome.tree.problems == []
    got = await everything(rig)
    assert len(got) == 107
    by_spid: dict[int, set[str]] = {}
    for recipient, _ in got:
        by_spid.setdefault(recipient.spid, set()).add(recipient.address)
    contents = {recipient.spid: content for recipient, content in got}
    submissions = wanted(sample)
    for spid, content in contents.items():
        old = content.split(b"ESMTP id ", 1)[1][:8].decode()
        line = submissions.pop(old)
        assert by_spid[spid] == {address.lower() for address in line["rcpts"]}
        assert is_several(spid) == (len(line["rcpts"]) > 1)
        body = content.split(b"+0000\r\n", 1)[1]
        # What was submitted went over the wire with its dots doubled, and is counted so.
        mended = 2 if body.endswith(b"\r\n\r\nbare\r\nLF\r\nlines\r\n") else 0
        assert len(body) + body.count(b"\r\n.") - mended == max(line["size"], 2)
    assert submissions == {}
    dots = next(content for _, content in got if b"id F97BB3C6;" in content)
    assert dots.endswith(b"\r\n\r\n.leading dot line (stuffed)\r\n..\r\n.\r\nend\r\n")
    assert image(sample) == before
    await rig.close()


async def test_what_is_brought_has_no_bare_line_end(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("incoming", record())
    tree.content(octets=b"Subject: x\r\n\r\na\r.\rMAIL FROM:<e@e.example>\n..\nb\r\n")
    rig = stopped(tmp_path, AFTER_SAMPLES)
    assert (await bring(rig, tree.var)).imported == 1
    ((recipient, content),) = await everything(rig)
    assert content == b"Subject: x\r\n\r\na\r\n.\r\nMAIL FROM:<e@e.example>\r\n..\r\nb\r\n"
    assert recipient.size == len(content)
    await rig.close()


async def test_what_is_brought_has_the_labels_of_its_header(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("incoming", record())
    tree.content(octets=b"Subject: x\r\nMessage-ID: <a@b.example>\r\nX-mqcd-Tag: old mail\r\n\r\na\r\n")
    rig = stopped(tmp_path, AFTER_SAMPLES)
    await bring(rig, tree.var)
    ((recipient, _),) = await everything(rig)
    assert recipient.envelope.labels == Marks("<a@b.example>", "", "old mail").labels()
    await rig.close()


async def test_the_first_sample_keeps_addresses_times_and_sources(tmp_path: Path) -> None:
    sample = unpack("incoming", tmp_path)
    rig = stopped(tmp_path, AFTER_SAMPLES)
    await bring(rig, sample / "var")
    got = {recipient.address: recipient for recipient, _ in await everything(rig)}
    odd = got["weird!#$&*-/=?^_`{}~@example.com"]
    assert odd.envelope.sender == "o'brien.x_y=z/w#1@sub.example.org"
    assert odd.envelope.received == 1_795_186_996_498
    assert got["bounce-to@example.org"].is_report
    assert got["eight@example.com"].envelope.body == "8BITMIME"
    assert got["rcpt1@example.com"].envelope.body == "7BIT"
    assert {recipient.envelope.client for recipient in got.values()} == {"127.0.0.1"}
    assert {recipient.attempts for recipient in got.values()} == {0}
    assert len({silo_of(recipient.spid, SILOS) for recipient in got.values()}) == SILOS
    await rig.close()


async def test_the_second_sample_keeps_areas_retries_and_replies(tmp_path: Path) -> None:
    sample = unpack("mixed", tmp_path)
    rig = stopped(tmp_path, 1_795_187_200_000)
    outcome = await bring(rig, sample / "var")
    assert (outcome.tree.found, outcome.imported, outcome.tree.damaged) == (17, 17, 0)
    await rig.open()
    assert await rig.post.claim_all() == []
    rig.clock.advance(1_795_188_060_000 - rig.clock.now())
    soft = {each.address: each for each in await rig.post.claim_all()}
    hard = {each.address: each for each in await rig.post.claim_bounces()}
    assert len(soft) == 8
    assert len(hard) == 9
    assert {(each.due, each.attempts) for each in soft.values()} == {(1_795_188_060_000, 1)}
    first = soft["soft1@example.com"]
    assert (first.qid, first.code, first.status) == (2, 450, "4.2.1")
    assert first.reply == "mailbox busy soft1@example.com"
    assert first.remote == "127.0.0.1"
    assert (soft["dsoft3@example.com"].code, soft["dsoft3@example.com"].reply) == (451, "try later")
    assert soft["soft6@example.org"].is_report
    assert hard["hard6@example.org"].is_report
    assert (hard["hard6@example.org"].code, hard["hard6@example.org"].reply) == (550, "")
    # Its file holds the end of an older, longer reply.
    assert hard["soft4@example.com"].reply == "content rejected"
    assert (hard["hard3@other.example"].status, hard["hard3@other.example"].code) == ("5.1.1", 550)
    for each in (*soft.values(), *hard.values()):
        content = await rig.post.read(each)
        (line,) = [one for one in submitted(sample) if one["final"].split()[-1].encode() in content]
        assert each.address in line["rcpts"]
        assert content.endswith(f"\r\n\r\nbody {line['n']}\r\n".encode())
    await rig.close()


async def test_what_is_imported_is_delivered_once_and_its_files_go(tmp_path: Path) -> None:
    tree = made(tmp_path, record(), record("F97BB3A1", 1), record("F97BB3A1", 2))
    tree.content("F97BB3A1")
    rig = stopped(tmp_path)
    await bring(rig, tree.var)
    got = await everything(rig)
    await rig.post.settle(delivered(), *(recipient for recipient, _ in got))
    await rig.evacuate()
    await rig.sweep()
    assert rig.spooled() == []
    await rig.close()
    assert look(rig).ok
    assert Counter(event["event"] for event in rig.events()) == {"accepted": 3, "delivered": 3}


async def test_the_ledger_and_the_events_know_it(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("incoming", record())
    tree.cluster("bounces", record("F97BB3A2", retries=1, code=550))
    tree.content()
    tree.content("F97BB3A2")
    tree.diagnosis("F97BB3A2", 1, "550 5.1.1 nobody")
    rig = stopped(tmp_path)
    await bring(rig, tree.var)
    assert look(rig).ok
    assert state_of(rig).totals == {"accepted": 2, "bounced": 1}
    events = rig.events()
    assert [event["event"] for event in events] == ["accepted", "accepted", "bounced"]
    assert {event["origin"] for event in events} == {"import"}
    assert (events[2]["code"], events[2]["status"], events[2]["reply"]) == (550, "5.1.1", "nobody")
    await rig.open()
    await rig.post.send("more@b.example")
    await rig.close()
    ids = [event["id"] for event in rig.events()]
    assert len(ids) == len(set(ids)) == 4
    assert state_of(rig).totals == {"accepted": 3, "bounced": 1}


async def test_a_second_run_brings_nothing(tmp_path: Path) -> None:
    sample = unpack("mixed", tmp_path)
    rig = stopped(tmp_path)
    await bring(rig, sample / "var")
    before = image(rig.root)
    again = await bring(rig, sample / "var")
    assert (again.tree.found, again.imported, again.tree.skipped) == (17, 0, 17)
    assert image(rig.root) == before
    # Not because it lies in the queue still: because it was brought.
    got = await everything(rig)
    await rig.post.settle(delivered(), *(recipient for recipient, _ in got if recipient.area != "bounces"))
    await rig.close()
    assert (await bring(rig, sample / "var")).imported == 0


async def test_a_tree_that_was_mended_gives_only_what_is_new(tmp_path: Path) -> None:
    tree = made(tmp_path, record(), record("F97BB3A2"), "half a line\n")
    rig = stopped(tmp_path)
    assert (await bring(rig, tree.var)).imported == 1
    tree.content("F97BB3A2")
    tree.cluster("incoming", record(), record("F97BB3A2"), record("F97BB3A4"))
    tree.content("F97BB3A4")
    again = await bring(rig, tree.var)
    assert (again.imported, again.tree.skipped, again.tree.damaged) == (2, 1, 0)
    assert len(state_of(rig).imports) == 2
    assert (await bring(rig, tree.var)).tree.skipped == 3
    assert len(await everything(rig)) == 3
    await rig.close()


async def test_it_joins_the_mail_that_is_there(tmp_path: Path) -> None:
    rig = stopped(tmp_path)
    await rig.open()
    await rig.post.send("own@b.example")
    await rig.close()
    tree = made(tmp_path, record())
    await bring(rig, tree.var)
    assert look(rig).ok
    got = await everything(Rig(rig.root, rig.clock))
    assert sorted(recipient.address for recipient, _ in got) == ["ann@b.example", "own@b.example"]
    assert {each.address: content for each, content in got}["ann@b.example"] == CONTENT
    assert len({recipient.spid for recipient, _ in got}) == 2


async def test_a_rehearsal_makes_nothing(tmp_path: Path) -> None:
    sample = unpack("mixed", tmp_path)
    rig = stopped(tmp_path)
    outcome = job(rig, sample / "var").rehearse()
    assert (outcome.tree.found, outcome.imported) == (17, 17)
    assert not rig.root.exists()
    await bring(rig, sample / "var")
    assert job(rig, sample / "var").rehearse().imported == 0


async def test_a_source_that_is_none_leaves_no_queue_behind(tmp_path: Path) -> None:
    rig = stopped(tmp_path)
    with pytest.raises(StoreUnavailable, match="no queue of Mailismus"):
        await bring(rig, tmp_path)
    assert not rig.root.exists()


async def test_beside_a_server_it_is_refused(tmp_path: Path) -> None:
    tree = made(tmp_path, record())
    rig = await stopped(tmp_path).open()
    with pytest.raises(StoreBusy, match="stop that server first"):
        await bring(rig, tree.var)
    await rig.close()


async def test_too_little_room_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    tree = made(tmp_path, record())
    rig = Rig(tmp_path / "q", FakeClock(), minfree=1 << 60)
    with pytest.raises(StoreUnavailable, match="too little room"):
        await bring(rig, tree.var)
    assert rig.spooled() == []


async def test_a_file_system_without_a_number_of_inodes_has_room(tmp_path: Path) -> None:
    class Uncounted(Disk):
        def free(self, path: Path) -> tuple[int, int]:
            return super().free(path)[0], 0

    tree = made(tmp_path, record())
    outcome = await replace(job(Rig(tmp_path / "q", FakeClock()), tree.var), disk=Uncounted()).run()
    assert outcome.imported == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "operation", ["open", "pwritev", "datasync", "sync_dir", "watching", "sync_filesystem", "rename"]
)
async def test_a_failure_at_any_call_takes_in_nothing_or_everything(tmp_path: Path, operation: str) -> None:
    tree = made(tmp_path)
    tree.cluster("incoming", record(), record("F97BB3A1", 1), record("F97BB3A1", 2))
    tree.cluster("deferred/T1800007200", record("F97BB3A2", retries=1, code=450))
    for spid in ("F97BB3A0", "F97BB3A1", "F97BB3A2"):
        tree.content(spid)
    source = read(tree.var)
    outcomes: set[int] = set()
    failed = True
    for passes in range(200):
        rig = Rig(tmp_path / f"q{passes}", FakeClock())
        disk = FaultyDisk()
        workers = LocalWorkers(Disk())
        async with owned(rig.options, rig.clock, RecordingObserver(), disk, workers) as ours:
            disk.fail(operation, f"{rig.root}/*", passes=passes)
            with suppress(OSError):
                admit(ours, "mailismus", source, no_progress)
            failed = not disk.armed
        outcomes.add(len(rig.listed()))
        await rig.open()
        await rig.close()
        events = Counter(event["event"] for event in rig.events())
        found = look(rig)
        # What the start leaves is whole; only the name of the event file may still be to be given.
        assert {problem.kind for problem in found.problems} <= {Kind.EVENTS}
        if found.problems:
            assert (await mend(rig)).ok
            events = Counter(event["event"] for event in rig.events())
        assert found.records in (0, 4)
        assert events["accepted"] == found.records
        again = await bring(rig, tree.var)
        assert again.imported == 4 - found.records
        assert look(rig).ok
        shutil.rmtree(rig.root)
        if not failed:
            break
    assert outcomes == {0, 4}
    assert not failed


async def unnamed(tmp_path: Path) -> tuple[Made, Rig, Path]:
    """A source, the queue into which it was brought, and the name that its events were not given yet."""
    tree = made(tmp_path, record())
    rig = stopped(tmp_path)
    await bring(rig, tree.var)
    (path,) = [p for p in (rig.root / "events").iterdir() if p.stat().st_size]
    path.rename(path.with_name(path.name + ".tmp"))
    return tree, rig, path


async def test_a_kill_between_the_edit_and_the_name_of_the_events(tmp_path: Path) -> None:
    tree, rig, path = await unnamed(tmp_path)
    assert [each.kind for each in look(rig).problems] == [Kind.EVENTS]
    assert pending_events(Disk(), rig.options, state_of(rig)) != []
    assert (await bring(rig, tree.var)).imported == 0
    assert path.exists()
    assert look(rig).ok
    assert {each.area for each in rig.listed()} == {Area.INCOMING}


async def test_the_next_start_names_the_events_of_an_import(tmp_path: Path) -> None:
    _, rig, path = await unnamed(tmp_path)
    again = await Rig(rig.root).open()
    assert path.exists()
    await again.close()


async def test_a_start_names_events_after_a_durable_edit(tmp_path: Path) -> None:
    _, rig, path = await unnamed(tmp_path)
    again = Rig(rig.root)
    again.disk.fail("rename", "*MANIFEST*")
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await again.open()
    assert not path.exists()
    await again.open()
    assert path.exists()
    await again.close()


async def test_lines_go_to_clusters_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_SHELVED_AT_ONCE", 1000)
    tree = made(tmp_path)
    spids = [f"F97BB3{number:02X}" for number in range(0, 40, 2)]
    tree.cluster("incoming", *map(record, spids))
    tree.cluster("deferred/T1800007200", *(record(spid, 2, retries=1, code=450) for spid in spids))
    for spid in spids:
        tree.content(spid)
    rig = Rig(tmp_path / "q", FakeClock())
    assert (await bring(rig, tree.var)).imported == 40
    assert look(rig).ok
    assert len(rig.clusters()) > 4
    assert len(rig.listed()) == 40
