"""What is made of `.eml` files without an index."""

from __future__ import annotations

import errno
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area, Body, Envelope, Origin, Recipient
from mqcd.disk.durable import Disk
from mqcd.queue.admin.findings import Kind
from mqcd.queue.admin.transfer import index
from mqcd.queue.admin.transfer.eml import read_directory
from mqcd.queue.admin.transfer.letters import Letter, Tree, with_crlf
from mqcd.sink.outlet import message_fields, to_line
from mqcd.sink.outputs import Received
from tests.fakes.clock import START_MS
from tests.fakes.disk import FaultyDisk


def read(directory: Path) -> Tree:
    return read_directory(Disk(), directory, now=START_MS, latest=START_MS)


def only(directory: Path, octets: bytes) -> Letter:
    (directory / "a.eml").write_bytes(octets)
    tree = read(directory)
    assert tree.problems == []
    (letter,) = tree.letters
    return letter


def refused(directory: Path, octets: bytes) -> str:
    """Why a file is none of a message."""
    (directory / "a.eml").write_bytes(octets)
    tree = read(directory)
    assert (tree.found, tree.damaged, tree.letters) == (1, 1, [])
    return tree.problems[0].text


def test_an_index_of_the_sink_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(b"From: a@a.example\r\nTo: b@b.example\r\n\r\nx\r\n")
    message = Received(
        sender="a@a.example",
        recipients=("b@b.example",),
        content=b"x\r\n",
        helo="h.example",
        peer="",
        at_ms=0,
    )
    (tmp_path / index.NAME).write_text(to_line(message_fields(message, file="a.eml")))
    with pytest.raises(StoreUnavailable, match="is no index of `mqcd queue export`"):
        read(tmp_path)


def test_an_index_keeps_each_field_of_a_record() -> None:
    envelope = Envelope(
        spid=START_MS << 23, sender="s@example.org", received=START_MS, origin=Origin.REPORT, body=Body.EIGHT,
        smtputf8=True, zone="bulk", listener="smtp", client="192.0.2.1", user="u", tls="TLSv1.3",
        dsn="RET=HDRS", release=START_MS + 1, priority=3, labels="tag=x",
    )  # fmt: skip
    record = Recipient(
        envelope=envelope, size=5, qid=2, address="r@example.net", area=Area.DEFERRED, due=START_MS + 2,
        attempts=1, unknowns=1, code=450, status="4.2.0", reply="later", remote="mx.example.net",
        dsn="NOTIFY=NEVER", warned=True,
    )  # fmt: skip
    unset = {
        each.name
        for held in (envelope, record)
        for each in fields(held)
        if getattr(held, each.name) == each.default
    }
    # What the record does not keep, how the spool keeps its content, and what operators made of it here.
    assert unset == {"session", "message_id", "linked", "route", "amended"}
    assert index.decode(index.encode("1.eml", [record])).recipients == (record,)


def test_a_damaged_line_of_an_index_is_no_foreign_one() -> None:
    assert not index.is_foreign('{"file": "a.eml", "spid": "00')
    assert not index.is_foreign('{"file": "a.eml", "spid": 7}')
    assert index.is_foreign('{"file": "a.eml"}')
    assert index.is_foreign("[]")


def test_headers_make_the_envelope(tmp_path: Path) -> None:
    letter = only(
        tmp_path,
        b"From: Ann <ann@a.example>\r\nTo: Bob <bob@b.example>,\r\n cho@c.example\r\n"
        b"Cc: bob@b.example\r\nSubject: x\r\n\r\nbody\r\n",
    )
    assert letter.envelope.sender == "ann@a.example"
    assert letter.envelope.received == START_MS
    assert [(each.qid, each.address) for each in letter.recipients] == [
        (1, "bob@b.example"),
        (2, "cho@c.example"),
    ]
    assert {(each.area, each.due, each.attempts) for each in letter.recipients} == {(Area.INCOMING, 0, 0)}
    assert letter.several


@pytest.mark.parametrize(("fields", "sender"), [
    (b"Return-Path: <back@a.example>\nSender: s@a.example\nFrom: f@a.example\n", "back@a.example"),
    (b"Return-Path: <>\nFrom: f@a.example\n", ""),
    (b"Sender: s@a.example\nFrom: f@a.example, g@a.example\n", "s@a.example"),
])  # fmt: skip
def test_who_sent_it(tmp_path: Path, fields: bytes, sender: str) -> None:
    assert only(tmp_path, fields + b"To: t@b.example\n\nx\n").envelope.sender == sender


def test_bcc_receives_and_is_dropped(tmp_path: Path) -> None:
    letter = only(
        tmp_path,
        b"From: a@a.example\nBCC: hidden@b.example,\n\tother@b.example\nTo: t@b.example\n"
        b"\nBcc: not a header\n",
    )
    assert [each.address for each in letter.recipients] == [
        "t@b.example", "hidden@b.example", "other@b.example",
    ]  # fmt: skip
    assert b"".join(with_crlf(letter.content())) == (
        b"From: a@a.example\r\nTo: t@b.example\r\n\r\nBcc: not a header\r\n"
    )


RESENT = b"Resent-From: again@c.example\nResent-To: new@d.example\nResent-Bcc: hidden@d.example\n"
FIRST = b"From: a@a.example\nTo: t@b.example\n"


@pytest.mark.parametrize(("fields", "sender", "recipients"), [
    (RESENT + FIRST, "again@c.example", ["new@d.example", "hidden@d.example"]),
    (b"Resent-Sender: s@c.example\n" + RESENT + FIRST, "s@c.example", ["new@d.example", "hidden@d.example"]),
    (b"Return-Path: <back@c.example>\nReceived: x\n" + RESENT + FIRST, "back@c.example",
     ["new@d.example", "hidden@d.example"]),
    (RESENT + b"Return-Path: <old@a.example>\n" + FIRST, "again@c.example",
     ["new@d.example", "hidden@d.example"]),
    (b"Resent-From: z@z.example\nResent-Cc: last@z.example\n" + RESENT + FIRST, "z@z.example",
     ["last@z.example"]),
    (b"Resent-From: z@z.example\nResent-To: last@z.example\nReceived: x\nResent-Cc: e@e.example\n" + FIRST,
     "z@z.example", ["last@z.example"]),
])  # fmt: skip
def test_who_sent_it_again_and_to_whom(
    tmp_path: Path, fields: bytes, sender: str, recipients: list[str]
) -> None:
    letter = only(tmp_path, fields + b"\nx\n")
    assert letter.envelope.sender == sender
    assert [each.address for each in letter.recipients] == recipients
    content = b"".join(with_crlf(letter.content()))
    assert b"Resent-Bcc" not in content
    assert b"To: t@b.example" in content


@pytest.mark.parametrize("mbox", [b"", b"From x\n"])
def test_bcc_is_dropped_also_at_the_top(tmp_path: Path, mbox: bytes) -> None:
    letter = only(tmp_path, mbox + b"Bcc: hidden@d.example,\n other@d.example\n" + FIRST + b"\nx\n")
    assert len(letter.recipients) == 3
    assert b"".join(with_crlf(letter.content())) == (FIRST + b"\nx\n").replace(b"\n", b"\r\n")


def test_what_was_sent_again_to_nobody_known_goes_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(b"Resent-From: list@c.example\nResent-Date: x\n" + FIRST + b"\nx\n")
    tree = read(tmp_path)
    assert (tree.damaged, tree.letters) == (1, [])
    assert tree.problems[0].text.endswith("Resent-To, Resent-Cc or Resent-Bcc")


@pytest.mark.parametrize("fields", [
    b"From: a@a.example\nTo: latin\xe9@b.example\n",
    b"From: a\xe9@a.example\nTo: t@b.example\n",
    b"From: a@a.example\nTo: t@b.example\nCc: x <\xff@c.example>\n",
])  # fmt: skip
def test_an_address_that_is_not_utf_8_is_refused(tmp_path: Path, fields: bytes) -> None:
    text = refused(tmp_path, fields + b"\nx\n")
    assert "is not UTF-8" in text
    text.encode()


@pytest.mark.parametrize("fields", [
    b"From: a@a.example\nTo: not-me@b.example <t@b.example>\nCc: c@c.example\n",
    b"From: a@a.example\nTo: <>\nCc: c@c.example\n",
    b"From: not-me@a.example <a@a.example>\nTo: t@b.example\n",
    b"From: a@a.example\nTo: not-me@b.example <t@b.example>,\n",
    b"From: a@a.example\nTo: All: not-me@b.example <t@b.example>;\n",
    b'From: a@a.example\nTo: "Tom, Tim" <c@c.example>, not-me@b.example <t@b.example>\n',
    b"From: a@a.example\nTo: c@c.example (Tom, Tim), not-me@b.example <t@b.example>\n",
    b"From: a@a.example\nTo: <>, t@b.example\n",
    b"From: a@a.example\nTo: t@b.example, (c@c.example\n",
])  # fmt: skip
def test_no_address_is_invented_or_skipped_in_an_odd_field(tmp_path: Path, fields: bytes) -> None:
    text = refused(tmp_path, fields + b"\nx\n")
    assert text.startswith("no list of addresses: ")


@pytest.mark.parametrize("line", [b">From a@a.example Sat Jan  1 2022", b"Bcc : hidden@b.example", b"hello"])
def test_no_recipient_below_an_odd_line_is_skipped(tmp_path: Path, line: bytes) -> None:
    text = refused(tmp_path, FIRST + line + b"\nCc: c@c.example\n\nx\n")
    assert text.endswith(f" is no field: {line.decode()!r}")


@pytest.mark.parametrize("end", [b"\r\r\n", b"\r\r"])
def test_no_recipient_below_a_double_line_end_is_skipped(tmp_path: Path, end: bytes) -> None:
    text = refused(tmp_path, FIRST.rstrip() + end + b"Cc: c@c.example\r\n\r\nx\r\n")
    assert text.endswith("fields: 'Cc: c@c.example\\r'")


@pytest.mark.parametrize("field", [
    b"t@b.example <t@b.example>",
    b"'t@b.example' <t@b.example>",
    b"t@b.example;",
    b'"Tom, Tim <x>" (t, t) <t@b.example>, ,',
    b'"Tom \\", Tim" (t (t, t), \\), t) <t@b.example>',
    b"All: t@b.example;, None:;",
    b"None:;\nCc: t@b.example",
    b"\nCc: t@b.example",
])  # fmt: skip
def test_what_a_list_of_addresses_may_look_like(tmp_path: Path, field: bytes) -> None:
    letter = only(tmp_path, b"From: a@a.example\nTo: " + field + b"\n\nx\n")
    assert [each.address for each in letter.recipients] == ["t@b.example"]


def test_octets_beside_addresses_need_not_be_utf_8(tmp_path: Path) -> None:
    octets = b"From: Ren\xe9 <a@a.example>\r\nTo: =?x?= \xff <t@b.example>\r\nSubject: caf\xe9\r\n\r\nx\r\n"
    letter = only(tmp_path, octets)
    assert (letter.envelope.sender, letter.recipients[0].address) == ("a@a.example", "t@b.example")
    assert b"".join(with_crlf(letter.content())) == octets


def test_the_line_that_an_mbox_puts_before_a_message_is_dropped(tmp_path: Path) -> None:
    letter = only(tmp_path, b"From a@a.example Sat Jan  1 00:00:00 2022\n" + FIRST + b"\nFrom here on\n")
    assert letter.envelope.sender == "a@a.example"
    assert b"".join(with_crlf(letter.content())) == FIRST.replace(b"\n", b"\r\n") + b"\r\nFrom here on\r\n"


def test_a_mailbox_gets_one_copy_however_its_domain_is_written(tmp_path: Path) -> None:
    letter = only(
        tmp_path, b"From: a@a.example\nTo: t@B.Example, t@b.example, T@b.example\nCc: t@b.example.\n\nx\n"
    )
    assert [each.address for each in letter.recipients] == ["t@B.Example", "T@b.example"]


def test_the_end_of_a_name_may_be_written_in_any_case(tmp_path: Path) -> None:
    for name in ("a.EML", "b.Eml", "c.eml", "d.txt"):
        (tmp_path / name).write_bytes(FIRST + b"\nx\n")
    assert read(tmp_path).found == 3


def test_octets_with_crlf_stay_as_they_are(tmp_path: Path) -> None:
    octets = b"From: a@a.example\r\nTo: t@b.example\r\n\r\n.dot\r\n\xe9t\xe9\r\nno end"
    letter = only(tmp_path, octets)
    assert b"".join(with_crlf(letter.content())) == octets


def test_addresses_in_utf_8_need_smtputf8(tmp_path: Path) -> None:
    letter = only(tmp_path, "From: a@a.example\nTo: jürgen@bücher.example\n\nx\n".encode())
    assert letter.recipients[0].address == "jürgen@bücher.example"
    assert letter.envelope.smtputf8


def test_what_has_no_envelope_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    files = {
        "1.eml": b"From: a@a.example\n\nto nobody\n",
        "2.eml": b"To: t@b.example\n\nfrom nobody\n",
        "3.eml": b"",
        "4.eml": b"From: a@a.example\nTo: not an address\n\nx\n",
        "deep/5.eml": b"From: a@a.example\nTo: t@b.example\n\nx\n",
        "readme.txt": b"From: a@a.example\nTo: t@b.example\n\nx\n",
    }
    for name, octets in files.items():
        (tmp_path / name).write_bytes(octets)
    tree = read(tmp_path)
    assert (tree.found, tree.damaged, len(tree.letters)) == (5, 4, 1)
    assert [each.path.name for each in tree.problems] == ["1.eml", "2.eml", "3.eml", "4.eml"]


def test_a_header_section_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(b"X: " + b"y" * (1 << 20))
    assert read(tmp_path).damaged == 1


def test_the_same_octets_in_two_files_are_two_messages(tmp_path: Path) -> None:
    for name in ("a.eml", "b.eml"):
        (tmp_path / name).write_bytes(b"From: a@a.example\nTo: t@b.example\n\nx\n")
    keys = [key for letter in read(tmp_path).letters for key in letter.keys]
    assert len(set(keys)) == 2
    assert read_directory(Disk(), tmp_path, now=START_MS, latest=START_MS, known=set(keys)).skipped == 2


def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no directory"):
        read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "says"), [("index.jsonl", "by itself"), ("index.jsonl.tmp", "a part of an export")]
)
def test_messages_of_an_export_are_never_taken_by_their_headers(tmp_path: Path, name: str, says: str) -> None:
    exported = tmp_path / "mail"
    exported.mkdir()
    (exported / "a.eml").write_bytes(b"From: a@a.example\nTo: done@b.example, waits@b.example\n\nx\n")
    (exported / name).write_bytes(b"")
    with pytest.raises(StoreUnavailable, match=f"{exported} .*{says}"):
        read(tmp_path)


def test_a_directory_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    disk = FaultyDisk()
    disk.fail("names", "*/secret", code=errno.EACCES)
    with pytest.raises(PermissionError) as caught:
        read_directory(disk, tmp_path, now=START_MS, latest=START_MS)
    assert str(caught.value.filename) == str(tmp_path / "secret")


def test_a_file_that_cannot_be_read_to_its_end_stops_no_other(tmp_path: Path) -> None:
    for name in ("a.eml", "b.eml"):
        (tmp_path / name).write_bytes(FIRST + b"\nx\n")
    disk = FaultyDisk()
    disk.fail("pread", "*/a.eml", passes=2, code=errno.EIO)
    tree = read_directory(disk, tmp_path, now=START_MS, latest=START_MS)
    assert (tree.found, tree.damaged, len(tree.letters)) == (2, 1, 1)
    assert [(each.path.name, each.text) for each in tree.problems] == [("a.eml", "Input/output error")]


def test_links_are_listed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail" / "a.eml").write_bytes(b"From: a@a.example\nTo: t@b.example\n\nx\n")
    (tmp_path / "mail" / "b.eml").symlink_to("a.eml")
    (tmp_path / "again").symlink_to("mail")
    tree = read(tmp_path)
    assert (tree.found, tree.damaged, len(tree.letters)) == (1, 0, 1)
    assert [(each.kind, each.path.name) for each in tree.problems] == [
        (Kind.STRAY, "again"), (Kind.STRAY, "b.eml"),
    ]  # fmt: skip


@given(st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"a", b"\0", b""])), st.integers(1, 4))
def test_line_ends_do_not_depend_on_cuts(parts: list[bytes], step: int) -> None:
    whole = b"".join(parts)
    cut = b"".join(with_crlf(whole[at : at + step] for at in range(0, len(whole), step)))
    assert cut == b"".join(with_crlf([whole]))
    assert not re.search(rb"(?<!\r)\n|\r(?!\n)|\0", cut)
    assert b"".join(with_crlf([cut])) == cut
    assert cut.replace(b"\r\n", b"") == re.sub(rb"[\r\n\0]", b"", whole)


@pytest.mark.parametrize(("octets", "clean"), [
    (b"a\r.\r\nb", b"a\r\n.\r\nb"),
    (b"a\n.\nMAIL FROM:<x>\n", b"a\r\n.\r\nMAIL FROM:<x>\r\n"),
    (b"a\r\r\nb", b"a\r\nb"),
    (b"a\r\rb\r", b"a\r\n\r\nb\r\n"),
    (b"a\r\0\n\0.\0\r\nb", b"a\r\n.\r\nb"),
])  # fmt: skip
def test_bare_line_ends_become_crlf(octets: bytes, clean: bytes) -> None:
    assert b"".join(with_crlf([octets])) == clean


def test_comments_within_comments_are_damage(tmp_path: Path) -> None:
    (tmp_path / "deep.eml").write_bytes(b"From: a@a.example\nTo: " + b"(" * 50_000 + b"\n\nx\n")
    (tmp_path / "good.eml").write_bytes(FIRST + b"\nx\n")
    tree = read(tmp_path)
    assert (tree.found, tree.damaged, len(tree.letters)) == (2, 1, 1)
