"""What the reader takes from a tree of Mailismus, kind by kind."""

from __future__ import annotations

import errno
import tracemalloc
from pathlib import Path

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area, Recipient
from mqcd.disk.durable import Disk
from mqcd.queue.admin.findings import Kind
from mqcd.queue.admin.transfer.letters import Tree
from mqcd.queue.admin.transfer.mailismus import read_tree
from tests.fakes.clock import START_MS
from tests.fakes.disk import FaultyDisk
from tests.unit.queue.admin.trees import CONTENT, LATEST, RECEIVED, image, made, read, record


def recipients(tree: Tree) -> list[Recipient]:
    return [each for letter in tree.letters for each in letter.recipients]


def only(tree: Tree) -> Recipient:
    (found,) = recipients(tree)
    return found


def counts(tree: Tree) -> tuple[int, int, int, int]:
    return tree.found, len(recipients(tree)), tree.skipped, tree.damaged


def test_a_new_record(tmp_path: Path) -> None:
    tree = made(tmp_path, record())
    got = only(read(tree.var))
    assert (got.qid, got.address, got.area, got.due, got.attempts) == (
        1,
        "ann@b.example",
        Area.INCOMING,
        0,
        0,
    )
    assert (got.envelope.sender, got.envelope.received) == ("me@here.example", RECEIVED)
    assert got.envelope.client == "127.0.0.1"
    assert got.envelope.origin == "import"
    assert (got.code, got.reply) == (0, "")


def test_sources_above_127_are_negative_numbers(tmp_path: Path) -> None:
    tree = made(tmp_path, record(source=-1062731519))
    assert only(read(tree.var)).envelope.client == "192.168.1.1"


def test_a_report_in_incoming(tmp_path: Path) -> None:
    tree = made(tmp_path, record(sender="", source=0))
    got = only(read(tree.var))
    assert got.is_report
    assert got.envelope.client == ""


def test_a_deferred_record_keeps_retries_code_and_due_time(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("deferred/T1795187940", record(retries=3, code=450))
    tree.content()
    tree.diagnosis("F97BB3A0", 1, "450 4.2.1 mailbox busy")
    got = only(read(tree.var))
    assert (got.area, got.due, got.attempts) == (Area.DEFERRED, 1_795_187_940_000, 3)
    assert (got.code, got.status, got.reply, got.remote) == (450, "4.2.1", "mailbox busy", "127.0.0.1")


def test_a_connection_that_was_refused(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("deferred/T1795187940", record(retries=1, code=421))
    tree.content()
    tree.diagnosis("F97BB3A0", 1, "Connection refused", remote=b"")
    got = only(read(tree.var))
    assert (got.code, got.status, got.reply, got.remote) == (421, "", "Connection refused", "")


def test_a_deferred_record_without_a_time_is_due_at_once(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("deferred", record(retries=1, code=450))
    tree.content()
    assert only(read(tree.var)).due == START_MS


def test_a_bounce_and_one_of_a_report(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster(
        "bounces",
        record(retries=1, code=550),
        record(spid="F97BB3A2", sender="", retries=1, code=550),
    )
    tree.content()
    tree.content("F97BB3A2")
    tree.diagnosis("F97BB3A0", 1, "550 5.1.1 nobody here")
    first, second = recipients(read(tree.var))
    assert (first.area, first.code, first.status, first.reply) == (Area.BOUNCES, 550, "5.1.1", "nobody here")
    assert (second.area, second.is_report, second.code, second.reply) == (Area.BOUNCES, True, 550, "")


@pytest.mark.parametrize(("code", "text", "reply"), [
    (550, "550 5.1.1 short", "short"),
    (421, "450 4.2.1 of an earlier attempt", ""),
    (554, "554 5.6.0 content rejectedt4@example.com", "content rejectedt4@example.com"),
])  # fmt: skip
def test_diagnoses_with_stale_tails(tmp_path: Path, code: int, text: str, reply: str) -> None:
    tree = made(tmp_path)
    tree.cluster("bounces", record(retries=1, code=code))
    tree.content()
    tree.diagnosis("F97BB3A0", 1, text)
    got = only(read(tree.var))
    assert (got.code, got.reply) == (code, reply)


def test_a_stale_tail_is_cut_despite_equal_replies(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("bounces", *(record("F97BB3A1", qid, retries=1, code=554) for qid in (1, 2)))
    tree.content("F97BB3A1")
    tree.diagnosis("F97BB3A1", 1, "554 5.6.0 content rejected")
    tree.diagnosis("F97BB3A1", 2, "554 5.6.0 content rejectedt4@example.com")
    assert [each.reply for each in recipients(read(tree.var))] == ["content rejected"] * 2


def test_a_long_or_torn_diagnosis_does_no_harm(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("bounces", record(retries=1, code=550), record("F97BB3A2", retries=1, code=550))
    tree.content()
    tree.content("F97BB3A2")
    tree.diagnosis("F97BB3A0", 1, "550 5.1.1 " + "é" * 300 + "\r\nmore")
    tree.diagnosis("F97BB3A2", 1, "", remote=b"\x7f")
    first, second = recipients(read(tree.var))
    assert first.reply == "é" * 100
    assert second.reply == ""


def test_records_before_the_offset_in_the_name_are_done(tmp_path: Path) -> None:
    tree = made(tmp_path)
    lines = [record(f"F97BB3A{n}") for n in (0, 2, 4)]
    at = len(lines[0]) + len(lines[1])
    tree.cluster("incoming", *lines, name=f"M000001A1F97BB4C6-1-p{at}.mqc")
    tree.cluster("incoming", record("F97BB3A6"), name=f"M000001A1F97BB4C7-1-p{len(lines[0])}.mqc")
    tree.cluster("incoming", record("F97BB3A8"), name="M000001A1F97BB4C8-1-p99999.mqc")
    for n in (0, 2, 4, 6, 8):
        tree.content(f"F97BB3A{n}", octets=f"F97BB3A{n}".encode())
    got = read(tree.var)
    assert counts(got) == (1, 1, 0, 0)
    assert only(got).envelope.spid == 0
    assert b"".join(got.letters[0].content()) == b"F97BB3A4"


def test_an_offset_within_a_line_is_reported(tmp_path: Path) -> None:
    tree = made(tmp_path)
    path = tree.cluster("incoming", record(), record("F97BB3A2"), name="M000001A1F97BB4C6-1-p10.mqc")
    tree.content("F97BB3A2")
    got = read(tree.var)
    assert counts(got) == (2, 1, 0, 1)
    assert (got.problems[0].path, got.problems[0].line) == (path, 1)


def test_any_name_from_m_to_mqc_is_a_cluster_and_no_other(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("incoming", record(), name="M-odd name.mqc")
    tree.cluster("incoming", record("F97BB3A2"), name="M1.mqc.bak")
    tree.content()
    tree.content("F97BB3A2")
    got = read(tree.var)
    assert counts(got) == (1, 1, 0, 0)
    assert [each.path.name for each in got.problems] == ["M1.mqc.bak"]


def test_a_rewritten_cluster_yields_each_record_once(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("incoming", record(), record("F97BB3A2"))
    tree.cluster("deferred/T1795187940", record(retries=1, code=450))
    tree.content()
    tree.content("F97BB3A2")
    got = read(tree.var)
    assert counts(got) == (3, 2, 1, 0)
    assert sorted((each.area, each.attempts) for each in recipients(got)) == [
        (Area.DEFERRED, 1),
        (Area.INCOMING, 0),
    ]


@pytest.mark.parametrize("area", ["incoming", "deferred/T1795187940", "bounces"])
def test_hard_links_in_each_area(tmp_path: Path, area: str) -> None:
    tree = made(tmp_path)
    tree.cluster(area, record("F97BB3A1", 2), record("F97BB3A1", 3))
    tree.content("F97BB3A1", qids=(2, 3))
    got = read(tree.var)
    assert counts(got) == (2, 2, 0, 0)
    (letter,) = got.letters
    assert letter.several
    assert b"".join(letter.content()) == CONTENT


def test_another_recipients_link_is_as_good(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("deferred/T1795187940", record("F97BB3A1", 2))
    tree.content("F97BB3A1", qids=(3,))
    assert counts(read(tree.var)) == (1, 1, 0, 0)


def test_dots_are_unstuffed(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("incoming", record())
    tree.content(octets=b"Subject: x\r\n\r\n..one\r\n...\r\nbare\n..two\r\nend\r\n")
    (letter,) = read(tree.var).letters
    assert b"".join(letter.content()) == b"Subject: x\r\n\r\n.one\r\n..\r\nbare\n..two\r\nend\r\n"


def test_damaged_and_blank_lines_are_listed_and_stop_nothing(tmp_path: Path) -> None:
    tree = made(tmp_path)
    path = tree.cluster(
        "incoming",
        record(),
        "\n",
        "F97BB3A2|1|half a line\n",
        record("F97BB3A4", received="soon"),
        record("nothex", 1),
        record("F97BB3A6", recipient="local@"),
        record("F97BB3A8", recipient="two words@b.example"),
        record("F97BB3AA", sender="not an address"),
        record("F97BB3AC", code=45),
        record("F97BB3AE", qid=0),
        record("F97BB3B0", source=1 << 40),
        "  \n",
        record("F97BB3B2"),
    )
    path.write_bytes(path.read_bytes() + b"F97BB3B4|1|\xff\xfe@b.example|a|b|1|0|0|0\nF97BB3B6|1|torn@exa")
    tree.content()
    tree.content("F97BB3B2")
    got = read(tree.var)
    assert counts(got) == (13, 2, 0, 11)
    assert [each.line for each in got.problems] == [*range(2, 13), 14, 15]
    assert [each.line for each in got.problems if each.kind is Kind.BLANK] == [2, 12]
    assert all(each.path == path for each in got.problems)


def test_a_last_line_without_its_end_may_be_whole(tmp_path: Path) -> None:
    tree = made(tmp_path, record().rstrip("\n"))
    assert counts(read(tree.var)) == (1, 1, 0, 0)


def test_missing_and_empty_contents_are_damage(tmp_path: Path) -> None:
    tree = made(tmp_path)
    path = tree.cluster(
        "incoming", record(), record("F97BB3A2"), record("F97BB3A3", 1), record("F97BB3A3", 2)
    )
    tree.content("F97BB3A2", octets=b"")
    got = read(tree.var)
    assert counts(got) == (4, 0, 0, 4)
    assert {(each.kind, each.path) for each in got.problems} == {(Kind.CONTENT, path)}
    assert sorted(each.line or 0 for each in got.problems) == [1, 2, 3, 4]


def test_two_messages_of_one_name_are_not_guessed_at(tmp_path: Path) -> None:
    tree = made(tmp_path, record(), record(qid=2, sender="other@here.example", received=RECEIVED + 5))
    assert counts(read(tree.var)) == (2, 0, 0, 2)


def test_strays_in_the_spool_are_listed(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("incoming", record())
    stray = tree.content().with_name("notes.txt")
    stray.write_text("mine")
    got = read(tree.var)
    assert counts(got) == (1, 1, 0, 0)
    assert [(each.kind, each.path) for each in got.problems] == [(Kind.STRAY, stray)]


def test_var_above_or_spool_elsewhere(tmp_path: Path) -> None:
    tree = made(tmp_path, record())
    (tmp_path / "home").mkdir()
    tree.var.rename(tmp_path / "home" / "var")
    assert counts(read(tmp_path / "home")) == (1, 1, 0, 0)
    elsewhere = tmp_path / "disk2"
    (tmp_path / "home" / "var" / "spool").rename(elsewhere)
    with pytest.raises(StoreUnavailable, match="--spool"):
        read(tmp_path / "home")
    got = read_tree(Disk(), tmp_path / "home", spool=elsewhere, now=START_MS, latest=LATEST)
    assert counts(got) == (1, 1, 0, 0)


def test_a_place_without_a_queue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no queue of Mailismus"):
        read(tmp_path)


def test_reading_changes_nothing(tmp_path: Path) -> None:
    tree = made(tmp_path, record())
    before = image(tree.var)
    read(tree.var)
    assert image(tree.var) == before


def test_a_kept_recipient_costs_little_more_than_its_line(tmp_path: Path) -> None:
    """A million of them must fit in memory."""
    tree = made(tmp_path)
    tree.cluster("incoming", *(record(f"{number:08X}", 1) for number in range(0, 6000, 2)))
    for number in range(0, 6000, 2):
        tree.content(f"{number:08X}")
    tracemalloc.start()
    try:
        got = read(tree.var)
        # A block of a megabyte is none of 3000 recipients': the interpreter's table of names has grown.
        kept = sum(trace.size for trace in tracemalloc.take_snapshot().traces if trace.size < 1 << 20)
    finally:
        tracemalloc.stop()
    assert (got.recipients, len(got.letters)) == (3000, 3000)
    assert kept / got.recipients < 500
    assert [letter.keys for letter in got.letters] == [letter.keys for letter in got.letters]


@pytest.mark.parametrize("place", ["queue/deferred", "queue/deferred/T1795187940", "spool", "spool/s01"])
def test_a_directory_that_cannot_be_read_is_refused_by_name(tmp_path: Path, place: str) -> None:
    tree = made(tmp_path)
    tree.cluster("deferred/T1795187940", record(retries=1, code=450))
    tree.content()
    disk = FaultyDisk()
    disk.fail("names", f"*/{place}", code=errno.EACCES)
    with pytest.raises(PermissionError) as caught:
        read_tree(disk, tree.var, now=START_MS, latest=LATEST)
    assert str(caught.value.filename) == str(tree.var / place)


def test_a_cluster_that_cannot_be_read_stops_no_other(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("incoming", record())
    tree.cluster("deferred/T1795187940", record("0A1B2C3E", 1, retries=1, code=450), record("0A1B2C3E", 2))
    tree.content()
    tree.content("0A1B2C3E")
    disk = FaultyDisk()
    disk.fail("pread", "*/deferred/*.mqc", code=errno.EIO)
    got = read_tree(disk, tree.var, now=START_MS, latest=LATEST)
    assert counts(got) == (2, 1, 0, 1)
    [problem] = got.problems
    assert (problem.kind, problem.path.parent.name) == (Kind.CLUSTER, "T1795187940")
    assert problem.text.endswith(": Input/output error")
    assert counts(read(tree.var)) == (3, 3, 0, 0)


def test_a_link_to_a_directory_is_reported_and_not_followed(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("deferred/T1795187940", record(retries=1, code=450))
    tree.content()
    deferred = tree.var / "queue" / "deferred"
    (deferred / "T1795187999").symlink_to("T1795187940")
    (deferred / "Mloop.mqc").symlink_to(deferred)
    got = read(tree.var)
    assert counts(got) == (1, 1, 0, 0)
    assert [(each.kind, each.path.name) for each in got.problems] == [
        (Kind.STRAY, "Mloop.mqc"), (Kind.STRAY, "T1795187999"),
    ]  # fmt: skip


def test_an_area_may_be_missing_and_may_be_a_link(tmp_path: Path) -> None:
    tree = made(tmp_path, record())
    area = tree.var / "queue" / "incoming"
    area.rename(tmp_path / "elsewhere")
    assert counts(read(tree.var)) == (0, 0, 0, 0)
    area.symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreUnavailable, match=f"{area} is no directory"):
        read(tree.var)
    area.unlink()
    area.symlink_to(tmp_path / "elsewhere")
    assert counts(read(tree.var)) == (1, 1, 0, 0)


def test_no_due_time_is_later_than_the_longest_delay(tmp_path: Path) -> None:
    tree = made(tmp_path)
    late = "T" + "9" * 23
    tree.cluster(f"deferred/{late}", record(retries=1, code=450))
    tree.cluster(f"deferred/{late}", record("F97BB3A2", retries=1, code=450), name="M000001A1F97BB4C6-2.mqc")
    tree.cluster("deferred/T1795187940", record("F97BB3A4", retries=1, code=450))
    for spid in ("F97BB3A0", "F97BB3A2", "F97BB3A4"):
        tree.content(spid)
    got = read_tree(Disk(), tree.var, now=START_MS, latest=1_795_188_000_000)
    assert sorted(each.due for each in recipients(got)) == [1_795_187_940_000, *2 * [1_795_188_000_000]]
    [problem] = got.problems
    assert (problem.path.name, got.damaged) == (late, 0)
    assert problem.text.endswith(" due at 2026-11-20T15:20:00.000Z")


def test_an_offset_behind_the_end_of_a_cluster_is_reported(tmp_path: Path) -> None:
    tree = made(tmp_path)
    path = tree.cluster("incoming", record(), name="M000001A1F97BB4C6-1-p9999.mqc")
    tree.cluster("incoming", record(), name=f"M000001A1F97BB4C6-2-p{len(record())}.mqc")
    got = read(tree.var)
    assert counts(got) == (0, 0, 0, 0)
    [problem] = got.problems
    assert problem.path == path
    assert problem.text.startswith("octet 9999 of its name ")
    assert f"({len(record())})" in problem.text
