"""Messages as programs write them, made ready for SMTP."""

from __future__ import annotations

import email.utils
from typing import Any

import pytest

from mqcd.sendmail.arguments import Asked
from mqcd.sendmail.letter import MAX_RECIPIENTS, BadLetter, Letter, make_letter, split_header, with_author


def make(text: bytes, **asked: object) -> Letter:
    wanted = Asked(recipients=["a@example.com"])
    for name, value in asked.items():
        setattr(wanted, name, value)
    return make_letter(wanted, text, user="alice", full_name="Alice A.")


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (b"Subject: s\n\nbody\n", b"Subject: s\r\n\r\nbody\r\n"),
        (b"Subject: s\r\n\r\nbody\r\n", b"Subject: s\r\n\r\nbody\r\n"),
        (b"no header", b"\r\nno header\r\n"),
        (b"", b"\r\n"),
        (b"Subject: s\nbody without a gap\n", b"Subject: s\r\n\r\nbody without a gap\r\n"),
        (b"Subject: s\n folded\n\n x\n", b"Subject: s\r\n folded\r\n\r\n x\r\n"),
        (b"From me Thu Jan  1\nSubject: s\n\n", b"Subject: s\r\n\r\n"),
        (b"S: s\n\none\rtwo\0three\n", b"S: s\r\n\r\none\r\ntwothree\r\n"),
        (b"S: s\n\none\n.\ntwo\n", b"S: s\r\n\r\none\r\n"),
        (b"S: s\n\none\n.", b"S: s\r\n\r\none\r\n"),
        (b".\nS: s\n", b"\r\n"),
        (b"S: s\n\n.one\n..\n", b"S: s\r\n\r\n.one\r\n..\r\n"),
        (b"bcc: x@y\nS: s\nResent-Bcc: a@b,\n c@d\n\nBcc: stays\n", b"S: s\r\n\r\nBcc: stays\r\n"),
    ],
)
def test_content_is_what_smtp_carries(text: bytes, content: bytes) -> None:
    assert make(text).content == content


def test_a_dot_is_content_on_request() -> None:
    assert make(b"S: s\n\n.\nmore\n", dots=True).content == b"S: s\r\n\r\n.\r\nmore\r\n"


@pytest.mark.parametrize(
    ("header", "recipients"),
    [
        (b"To: b@x, C <c@x>\nCc: d@x\nBcc: e@x\n", ["a@example.com", "b@x", "c@x", "d@x", "e@x"]),
        (b"To: b@x\nResent-To: r@x\nResent-Bcc: s@x\n", ["a@example.com", "r@x", "s@x"]),
        (b'To: "B, Mr" <b@x>,\n root\n', ["a@example.com", "b@x", "root"]),
        (b"To: friends: b@x, c@x;\n", ["a@example.com", "b@x", "c@x"]),
        (b"To: undisclosed-recipients:;\n", ["a@example.com"]),
        (b"To: b@x, b@x\nCc: b@x\n", ["a@example.com", "b@x"]),
        ("To: jürgen@x\n".encode(), ["a@example.com", "jürgen@x"]),
        (b"To: a@x, b@x,\nCc: c@x\n", ["a@example.com", "a@x", "b@x", "c@x"]),
        (b"To: bob@x (Smith, Bob)\nCc: c@x\n", ["a@example.com", "bob@x", "c@x"]),
        (b"To: root (Smith, Bob)\nCc: all: bob;\n", ["a@example.com", "root", "bob"]),
        (b"To: a@x; b@x\nCc: c@x\n", ["a@example.com", "a@x", "b@x", "c@x"]),
        (b"To: a@[192.0.2.1]\nCc: c@x\n", ["a@example.com", "a@[192.0.2.1]", "c@x"]),
    ],
)
def test_recipients_come_from_the_header(header: bytes, recipients: list[str]) -> None:
    assert list(make(header + b"\nbody\n", from_header=True).recipients) == recipients


@pytest.mark.parametrize(
    "value",
    [b"a@x, b@x,", b"bob@x (Smith, Bob)", b"a@x; b@x", b"a@[192.0.2.1]"],
)
def test_a_strict_parser_of_addresses_loses_no_recipient(
    monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    read = email.utils.getaddresses
    # Some Pythons have it already.
    lenient: dict[str, Any] = {"strict": False} if hasattr(email.utils, "supports_strict_parsing") else {}

    def strictly(values: list[str], *, strict: bool = True) -> list[tuple[str, str]]:
        return [("", "")] if strict else read(values, **lenient)

    monkeypatch.setattr(email.utils, "getaddresses", strictly)
    monkeypatch.setattr(email.utils, "supports_strict_parsing", True, raising=False)
    letter = make(b"To: " + value + b"\nCc: c@x\n\nbody\n", from_header=True)
    assert len(letter.recipients) == 2 + value.count(b"x") + value.count(b"[")


@pytest.mark.parametrize(
    "value", [b"John Smith", b"a@x b@x", b"<>, b@x", b"b@x, (c@x", b"b@x <c@x>", b"b@\xff"]
)
def test_a_field_that_cannot_be_read_is_an_error(value: bytes) -> None:
    with pytest.raises(BadLetter, match=r"^Resent-To: "):
        make(b"Resent-Cc: c@x\nResent-To: " + value + b"\n\nbody\n", from_header=True)


def test_sender_and_name_are_the_users_own() -> None:
    letter = make(b"\nbody\n")
    assert (letter.sender, letter.author) == ("alice", "Alice A.")
    assert make(b"\nx\n", sender="", name="N").sender == ""
    assert make(b"From: b@x\n\nx\n", name="N").author is None


def test_8bit_content_is_declared() -> None:
    assert (make(b"\nx\n").body, make(b"\n\xe4\n").body, make(b"\n\xe4\n", body="7BIT").body) == (
        "",
        "8BITMIME",
        "7BIT",
    )


@pytest.mark.parametrize(
    ("author", "sender", "line"),
    [
        ("", "alice", "From: <alice@mx.example.org>"),
        ("Alice", "alice", "From: Alice <alice@mx.example.org>"),
        ("A. (root)", "a@x", 'From: "A. (root)" <a@x>'),
        ("Möge", "a@x", "From: =?utf-8?b?TcO2Z2U=?= <a@x>"),
        ("x\r\nBcc: y", "a@x", 'From: "xBcc: y" <a@x>'),
        ("", "", "From: <alice@mx.example.org>"),
    ],
)
def test_from_is_added(author: str, sender: str, line: str) -> None:
    letter = Letter(sender=sender, author=author, recipients=("b@x",), content=b"\r\n")
    assert with_author(letter, "alice", "mx.example.org") == f"{line}\r\n\r\n".encode()


@pytest.mark.parametrize(
    "asked",
    [
        {"recipients": []},
        {"recipients": ["a@x\r\nRCPT TO:<b@x>"]},
        {"recipients": [""]},
        {"sender": "a\x00@x"},
        {"envelope_id": "a\n"},
        {"recipients": ["a" * 1000 + str(number) for number in range(MAX_RECIPIENTS // 1000 + 1)]},
        {"recipients": ["ä" * 1000 + str(number) for number in range(MAX_RECIPIENTS // 2000 + 1)]},
        {"recipients": ["\udcff@x"]},
    ],
)
def test_what_cannot_be_said_is_an_error(asked: dict[str, object]) -> None:
    with pytest.raises(BadLetter):
        make(b"\nx\n", **asked)


def test_fields_keep_their_octets() -> None:
    fields, body = split_header(b"A: 1\r\n 2\r\nb:3\r\n\r\nC: 4\r\n")
    assert (list(fields), body) == ([("a", b"A: 1\r\n 2\r\n"), ("b", b"b:3\r\n")], b"C: 4\r\n")
