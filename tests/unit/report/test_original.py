"""What a report returns of a message."""

from __future__ import annotations

from mqcd.report.original import MAX_LINE, Excerpt, excerpt

HEADER = b"From: a@example.com\r\nSubject: hello\r\n"
WHOLE = HEADER + b"\r\nOne\r\nTwo\r\n"


def of(octets: bytes, limit: int = 10_000, headers_only: bool = False) -> Excerpt:
    return excerpt(octets[:limit], len(octets), headers_only)


def test_a_small_message_comes_whole() -> None:
    assert of(WHOLE) == Excerpt(octets=WHOLE, headers_only=False, cut=False)


def test_a_message_without_a_final_newline_gets_one() -> None:
    assert of(WHOLE[:-2]).octets == WHOLE


def test_a_cut_message_ends_with_its_last_whole_line() -> None:
    for limit in range(len(HEADER) + 7, len(WHOLE) - 1):
        assert of(WHOLE, limit).octets == HEADER + b"\r\nOne\r\n"
        assert of(WHOLE, limit).cut


def test_a_cut_within_the_header_leaves_whole_fields() -> None:
    cut = of(WHOLE, len(HEADER) - 4)
    assert cut == Excerpt(octets=b"From: a@example.com\r\n", headers_only=True, cut=True)


def test_a_cut_within_the_first_line_leaves_nothing() -> None:
    assert of(WHOLE, 5).octets == b""


def test_headers_alone_when_the_sender_asked_for_them() -> None:
    assert of(WHOLE, headers_only=True) == Excerpt(octets=HEADER, headers_only=True, cut=True)
    assert not of(HEADER, headers_only=True).cut


def test_a_message_without_a_header_keeps_its_body() -> None:
    assert of(b"\r\nbody\r\n").octets == b"\r\nbody\r\n"
    assert of(b"").octets == b"\r\n"


def test_bare_line_ends_and_nuls_are_put_right() -> None:
    assert of(b"A: 1\nB: 2\r\r\nx\0y\n").octets == b"A: 1\r\nB: 2\r\n\r\nxy\r\n"


def test_long_lines_are_broken_between_characters() -> None:
    text = "ü" * 2000
    octets = of(b"X: " + b"x" * 3000 + b"\r\n\r\n" + text.encode() + b"\r\n").octets
    header, _, body = octets.partition(b"\r\n\r\n")
    assert max(len(line) for line in octets.split(b"\r\n")) <= MAX_LINE
    assert all(line.startswith(b" ") for line in header.split(b"\r\n")[1:])
    assert b"".join(body.split(b"\r\n")).decode() == text
    assert all(line.decode() for line in body.split(b"\r\n")[:-1])
