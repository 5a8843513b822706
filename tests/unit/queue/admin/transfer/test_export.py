"""Messages out of the queue, and back into another one."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.config.kinds.names import LOGIN, NAME
from mqcd.core.errors import DecodeError, StoreBusy, StoreUnavailable
from mqcd.core.model import Attempt, Bounced, Origin, Phase, Recipient
from mqcd.core.queueing.spid import format_spid
from mqcd.core.queueing.transition import with_last_words
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.reply import Reply
from mqcd.disk.durable import Disk
from mqcd.queue.admin.transfer import index
from mqcd.queue.admin.transfer.eml import read_directory
from mqcd.queue.admin.transfer.export import Exported, Made, export, export_view
from mqcd.queue.admin.transfer.job import Import, Outcome
from mqcd.queue.format import record
from mqcd.queue.reading.shards import Snapshots
from mqcd.submit.esmtp.parameters import DSN_PARAMETERS, parse_mail, parse_rcpt
from tests.contract.mail import delivered
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver
from tests.unit.queue.admin.kit import LARGE, addresses, cluster_of, fill, look
from tests.unit.queue.admin.trees import LATEST
from tests.unit.queue.support import Rig, recipient, recipients_with
from tests.unit.queue.support import addresses as any_address


def out(rig: Rig, target: Path, **selection: Any) -> Exported:
    return export(Disk(), (rig.queue, rig.spool), Selection(**selection), target)


def entries(target: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (target / index.NAME).read_text().splitlines()]


async def bring(rig: Rig, directory: Path) -> Outcome:
    now = rig.clock.now()
    latest = now + rig.options.schedule.longest
    return await Import(
        options=rig.options,
        clock=rig.clock,
        observer=RecordingObserver(),
        kind="eml",
        read=lambda known: read_directory(Disk(), directory, now=now, latest=latest, known=known),
    ).run()


async def test_each_message_has_its_file_and_its_line(rig: Rig, tmp_path: Path) -> None:
    await fill(rig)
    await rig.evacuate()
    await rig.post.send("late@d.example", content=b"in the journal\r\n")
    target = tmp_path / "out"
    done = out(rig, target)
    assert (done.messages, done.recipients, done.gone, done.failed) == (5, 6, 0, {})
    lines = entries(target)
    assert sorted(path.name for path in target.iterdir()) == [
        *sorted(line["file"] for line in lines),
        index.NAME,
    ]
    for line in lines:
        octets = (target / line["file"]).read_bytes()
        assert len(octets) == line["size"]
    by_first = {line["recipients"][0]["recipient"]: line for line in lines}
    assert (target / by_first["new@c.example"]["file"]).read_bytes() == LARGE
    assert (target / by_first["late@d.example"]["file"]).read_bytes() == b"in the journal\r\n"
    two = by_first["bounces@a.example"]["recipients"]
    assert [(each["qid"], each["area"]) for each in two] == [(1, "bounces"), (2, "deferred")]
    assert (two[1]["code"], two[1]["status"], two[1]["reply"]) == (450, "4.2.1", "busy")
    assert two[1]["due"].endswith("Z")
    assert oct((target / by_first["ann@b.example"]["file"]).stat().st_mode)[-3:] == "600"


async def test_only_what_is_selected(rig: Rig, tmp_path: Path) -> None:
    await fill(rig)
    assert out(rig, tmp_path / "a", domain="b.example").messages == 2
    assert out(rig, tmp_path / "b", limit=1).recipients == 1
    assert out(rig, tmp_path / "c", sender="nobody@x.example").messages == 0
    assert entries(tmp_path / "c") == []


@pytest.mark.parametrize("part", [1, 2, 3])
async def test_in_parts_it_is_the_same(rig: Rig, tmp_path: Path, part: int) -> None:
    await fill(rig)
    await rig.evacuate()
    await rig.post.send("late@d.example", "later@d.example", content=b"in the journal\r\n")
    told: list[tuple[int, int]] = []
    roots = rig.queue, rig.spool
    whole = export(Disk(), roots, Selection(), tmp_path / "whole")
    parts = export(
        Disk(), roots, Selection(), tmp_path / "parts", lambda _, done, all_: told.append((done, all_)), part
    )
    assert parts == whole
    assert entries(tmp_path / "parts") == entries(tmp_path / "whole")
    assert told == sorted(told)
    assert told[-1] == (whole.messages, whole.messages)
    limited = export(Disk(), roots, Selection(limit=4), tmp_path / "limited", part=part)
    assert limited.recipients == 4


async def test_a_message_that_goes_before_its_part_comes_is_gone(rig: Rig, tmp_path: Path) -> None:
    await rig.post.send("first@d.example")
    await rig.post.send("last@d.example")
    disk = FaultyDisk()
    gate = disk.block("pwritev", "*.eml")
    roots, target = (rig.queue, rig.spool), tmp_path / "out"
    work = asyncio.create_task(
        asyncio.to_thread(export, disk, roots, Selection(), target, lambda *_: None, 1)
    )
    assert await asyncio.to_thread(gate.reached.wait, 30)
    [last] = [each for each in await rig.post.claim_all() if each.address.startswith("last")]
    await rig.post.settle(delivered(), last)
    gate.release()
    done = await work
    assert (done.messages, done.gone, done.failed) == (1, 1, {})


async def test_records_that_are_damaged_are_counted(rig: Rig, tmp_path: Path) -> None:
    await rig.post.send("whole@d.example", "broken@d.example")
    await rig.evacuate()
    [name] = rig.clusters()
    data = (rig.queue / name).read_bytes()
    (rig.queue / name).write_bytes(data.replace(b"broken@", b"Broken@"))
    done = out(rig, tmp_path / "out")
    assert (done.messages, done.recipients, done.damaged) == (1, 1, 1)
    (rig.queue / name).write_bytes(data)


async def test_a_directory_that_holds_something_is_refused(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(StoreUnavailable, match="not empty"):
        out(rig, tmp_path)


async def test_a_content_that_is_missing_is_reported(rig: Rig, tmp_path: Path) -> None:
    await fill(rig)
    await rig.close()
    (spool_file, other, *_) = sorted(rig.spool.rglob("*.msg"))
    spool_file.unlink()
    other.write_bytes(b"short")
    done = out(rig, tmp_path / "out")
    assert {format_spid(spid) for spid in done.failed} == {spool_file.stem, other.stem}
    assert done.messages == 2
    assert not (tmp_path / "out" / f"{other.stem}.eml").exists()


async def test_a_content_that_cannot_be_read_stops_no_other(rig: Rig, tmp_path: Path) -> None:
    await fill(rig)
    await rig.close()
    (unreadable, failing, *others) = sorted(rig.spool.rglob("*.msg"))
    unreadable.unlink()
    unreadable.mkdir()
    disk = FaultyDisk()
    disk.fail("pread", f"*/{failing.name}", times=None)
    done = export(disk, (rig.queue, rig.spool), Selection(), tmp_path / "out")
    assert {format_spid(spid): text.split(": ")[-1] for spid, text in done.failed.items()} == {
        unreadable.stem: "Is a directory",
        failing.stem: "Input/output error",
    }
    assert sorted(line["file"] for line in entries(tmp_path / "out")) == [
        f"{path.stem}.eml" for path in others
    ]


async def test_a_target_that_cannot_be_written_stops_it(rig: Rig, tmp_path: Path) -> None:
    await fill(rig)
    disk = FaultyDisk()
    disk.fail("pwritev", "*.eml", passes=1, code=errno.ENOSPC)
    with pytest.raises(StoreUnavailable, match=r"\.eml: No space left on device.* name another directory"):
        export(disk, (rig.queue, rig.spool), Selection(), tmp_path / "out")


async def test_a_cluster_that_is_missing_is_counted_and_the_others_go(rig: Rig, tmp_path: Path) -> None:
    await fill(rig)
    await rig.close()
    cluster_of(rig, "deferred").unlink()
    done = out(rig, tmp_path / "out")
    assert (done.recipients, done.damaged, done.failed) == (2, 3, {})


async def test_a_damaged_stretch_of_the_journal_is_counted(rig: Rig, tmp_path: Path) -> None:
    for n in range(3):
        await rig.post.send(f"{n}@d.example")
    segment = await rig.seal()
    data = segment.path.read_bytes()
    segment.path.write_bytes(data.replace(b"1@d.example", b"1@D.example"))
    done = out(rig, tmp_path / "out")
    assert (done.recipients, done.damaged) == (2, 1)
    segment.path.write_bytes(data)


async def test_what_is_delivered_meanwhile_is_gone_and_not_failed(rig: Rig, tmp_path: Path) -> None:
    await rig.post.send("ann@b.example", content=LARGE)
    await rig.post.send("bob@b.example")
    disk = FaultyDisk()
    gate = disk.block("open", "*.msg")
    roots = rig.queue, rig.spool
    task = asyncio.create_task(asyncio.to_thread(export, disk, roots, Selection(), tmp_path / "out"))
    await asyncio.to_thread(gate.reached.wait, 30)
    ann = next(each for each in await rig.post.claim_all() if each.address == "ann@b.example")
    await rig.post.settle(delivered(), ann)
    # Slower than a pin may be held.
    await rig.clock.run_for(61_000)
    await rig.shard.deleter.settled()
    gate.release()
    done = await task
    assert (done.messages, done.gone, done.failed) == (1, 1, {})


class Unpinned(FaultyDisk):
    """That of a reader whose pin has ended."""

    def lock(self, fd: int, *, exclusive: bool) -> bool:
        return True


async def test_a_content_that_moves_meanwhile_is_copied_from_where_it_is(rig: Rig, tmp_path: Path) -> None:
    for name in ("first", "moves", "goes"):
        await rig.post.send(f"{name}@d.example", content=name.encode())
    disk = Unpinned()
    gate = disk.block("pwritev", "*.eml")
    target = tmp_path / "out"
    work = asyncio.create_task(asyncio.to_thread(export, disk, (rig.queue, rig.spool), Selection(), target))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    segment = rig.shard.ring.current
    assert segment is not None
    [goes] = [each for each in await rig.post.claim_all() if each.address.startswith("goes")]
    await rig.post.settle(delivered(), goes)
    await rig.evacuate()
    while segment.path.exists():
        await rig.post.send("new@d.example")
        await rig.seal()
    gate.release()
    done = await work
    assert (done.messages, done.recipients, done.gone, done.failed) == (2, 2, 1, {})
    assert [(target / each["file"]).read_bytes() for each in entries(target)] == [b"first", b"moves"]
    assert len(list(target.iterdir())) == 3


async def test_a_queue_that_moves_on_is_read_again(rig: Rig, tmp_path: Path) -> None:
    await fill(rig)
    moves = [True] * 5

    class Overtaken(Snapshots):
        def project(self, selection: Selection, make: Callable[[str, bool], Made]) -> Iterator[list[Made]]:
            moves_on = moves.pop(0)
            for found in super().project(selection, make):
                yield found
                if moves_on:
                    raise StoreBusy("the queue has moved on")

    def export_it() -> Exported:
        look = partial(Overtaken, Disk(), rig.queue, rig.spool)
        return export_view(Disk(), look, Selection(), tmp_path / "out")

    with pytest.raises(StoreBusy, match="moved on"):
        export_it()
    assert not (tmp_path / "out").exists()
    moves += [True, False, True, False]
    done = export_it()
    assert (done.messages, done.gone, done.failed, moves) == (4, 0, {}, [])


async def test_what_was_exported_comes_back_as_it_was(rig: Rig, tmp_path: Path) -> None:
    await fill(rig)
    await rig.close()
    before = {each.address: each for each in rig.listed()}
    out(rig, tmp_path / "out")
    other = Rig(tmp_path / "other", rig.clock)
    outcome = await bring(other, tmp_path / "out")
    assert (outcome.tree.found, outcome.imported, outcome.tree.damaged) == (5, 5, 0)
    after = {each.address: each for each in other.listed()}
    for address, old in before.items():
        envelope = replace(old.envelope, origin=Origin.IMPORT, spid=after[address].spid)
        assert after[address] == replace(old, envelope=envelope)
    assert look(other).ok
    await other.open()
    got = await other.post.claim_all() + await other.post.claim_bounces()
    contents = {each.address: await other.post.read(each) for each in got}
    assert contents["new@c.example"] == LARGE
    await other.post.settle(delivered(), *(each for each in got if each.area != "bounces"))
    await other.close()
    again = await bring(other, tmp_path / "out")
    assert (again.imported, again.tree.skipped) == (0, 5)
    assert "new@c.example" not in addresses(other.listed())


def test_a_damaged_index_is_reported_and_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(b"From: a@b.example\n\nhi\n")
    (tmp_path / index.NAME).write_text('{"file":"a.eml"}\nnonsense\n[]\n')
    tree = read_directory(Disk(), tmp_path, now=FakeClock().now(), latest=LATEST)
    assert (tree.found, tree.damaged, tree.letters) == (3, 3, [])
    assert [each.line for each in tree.problems] == [1, 2, 3, None]


_plain = recipients_with(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=16))


@given(st.lists(_plain, min_size=1, max_size=3, unique_by=lambda each: each.qid), any_address)
def test_index_lines_come_back_as_they_went(given_: list[Recipient], sender: str) -> None:
    # What operators did to it in this queue is not for another one.
    envelope = replace(given_[0].envelope, sender=sender)
    size = given_[0].size
    same = [
        replace(each, envelope=envelope, size=size, linked=False, route="", amended="") for each in given_
    ]
    line = index.encode("x.eml", same)
    entry = index.decode(line)
    assert entry.recipients == tuple(same)
    assert index.encode(entry.file, entry.recipients) == line


@given(
    st.one_of(st.text(max_size=60), st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists))
)
def test_the_index_decoder_raises_only_its_own_error(value: object) -> None:
    for line in (str(value), json.dumps(value), json.dumps({"file": value, "recipients": value})):
        with pytest.raises(DecodeError):
            index.decode(line)


def line_of(**changes: Any) -> str:
    """An index line with other values; what no message has goes to its recipient."""
    body: dict[str, Any] = json.loads(index.encode("x.eml", [recipient()]))
    for name, value in changes.items():
        (body if name in body else body["recipients"][0])[name] = value
    return json.dumps(body)


@pytest.mark.parametrize("changes", [
    {"qid": 0}, {"qid": 1 << 31}, {"qid": 10**30}, {"attempts": 10**25}, {"attempts": -1},
    {"unknowns": 1 << 31}, {"code": 9999}, {"code": 199}, {"size": -1}, {"size": 1.5},
    {"due": "0001-01-01T00:00:00Z"}, {"due": "9999-12-31T00:00:00Z"}, {"received": "1969-12-31T00:00:00Z"},
    {"user": "x" * 70_000}, {"zone": "z" * 65}, {"reply": "\N{SNOWMAN}" * 334}, {"remote": "\ud800"},
    {"status": "4.2.1\r\nX"}, {"reply": "a\nb"}, {"dsn": "RET=FULL\r\nDATA"}, {"tls": "\0"},
    {"file": "\ud800.eml"}, {"sender": "a@" + "b" * 400}, {"area": ["held"]}, {"origin": {}},
])  # fmt: skip
def test_an_index_line_no_queue_has_is_refused(changes: dict[str, Any]) -> None:
    index.decode(line_of())
    (name,) = changes
    with pytest.raises(DecodeError, match=r"not a line of index\.jsonl") as caught:
        index.decode(line_of(**changes))
    assert name in str(caught.value) or "Area" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_two_recipients_of_a_message_never_have_the_same_qid() -> None:
    body = json.loads(line_of())
    body["recipients"] *= 2
    with pytest.raises(DecodeError, match="the same qid"):
        index.decode(json.dumps(body))


def test_the_longest_index_line_fits_the_journal() -> None:
    address = "%" * 64 + "@" + ".".join(["a" * 61] * 4)
    texts = {name: "|" * most for name, most in (*index._WORDS.items(), *index._TEXTS.items())}
    last = {"qid": (1 << 31) - 1, "attempts": (1 << 31) - 1, "unknowns": (1 << 31) - 1, "size": (1 << 63) - 1}
    line = line_of(sender=address, recipient=address, **texts, **last)
    (entry,) = index.decode(line).recipients
    entry = replace(entry, dsn=texts["dsn"], envelope=replace(entry.envelope, dsn=texts["dsn"]))
    assert record.sound(record.encode(entry)).qid == last["qid"]


def exported(directory: Path, *lines: str) -> Path:
    """A directory as an export leaves it, with index lines of one's own."""
    directory.mkdir()
    (directory / "x.eml").write_bytes(bytes(4096))
    (directory / index.NAME).write_text("".join(f"{line}\n" for line in lines))
    return directory


def test_what_an_index_names_twice_is_brought_once(tmp_path: Path) -> None:
    mail = exported(tmp_path / "mail", line_of(), line_of(), line_of(qid=2))
    tree = read_directory(Disk(), mail, now=FakeClock().now(), latest=LATEST)
    assert (tree.found, tree.recipients, tree.skipped, tree.damaged) == (3, 2, 1, 0)


async def test_an_index_line_that_is_refused_stops_no_other(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "q")
    mail = exported(tmp_path / "mail", line_of(user="x" * 70_000), line_of(remote="\ud800"), line_of())
    outcome = await bring(rig, mail)
    assert (outcome.tree.found, outcome.imported, outcome.tree.damaged) == (3, 1, 2)
    assert look(rig).ok


def test_no_index_due_time_exceeds_the_longest_delay(tmp_path: Path) -> None:
    late = line_of(due="2099-01-01T00:00:00Z")
    mail = exported(tmp_path / "mail", late, line_of(spid="0" * 16))
    tree = read_directory(Disk(), mail, now=FakeClock().now(), latest=START_MS + 1000)
    assert [each.due for letter in tree.letters for each in letter.recipients] == [START_MS + 1000, START_MS]
    [problem] = tree.problems
    assert (problem.path.name, problem.line, tree.damaged) == (index.NAME, 1, 0)


def test_an_index_takes_the_longest_that_comes_by_smtp() -> None:
    name = ".".join([*["\\255" * 63] * 3, "\\255" * 61])
    words = {"dsn": parse_rcpt(f"NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;{'x' * 493}", DSN_PARAMETERS)}
    tried = Attempt(destination=name, phase=Phase.DATA, remote_host=name, at=(1 << 43) - 1)
    reply = Reply(code=550, status="5.123.123", text="\N{SNOWMAN}" * 1000)
    last = with_last_words(recipient(**words), Bounced(reply=reply, attempt=tried))
    envelope = replace(
        last.envelope,
        dsn=parse_mail(f"RET=FULL ENVID={'x' * 100}", DSN_PARAMETERS).dsn,
        client=f"{'ffff:' * 7}ffff%eth0",
        zone=NAME.parse("z" * 64),
        listener=NAME.parse("n" * 64),
        user=LOGIN.parse("\N{GRINNING FACE}" * 128),
    )
    last = replace(last, envelope=envelope)
    assert index.decode(index.encode("x.eml", [last])).recipients == (last,)
