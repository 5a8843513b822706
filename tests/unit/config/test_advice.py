"""Advice files: what is written reads back; what is wrong is named with its place, all of it at once."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.config.advice import (
    Advice,
    Shaping,
    Suppression,
    comparable,
    document,
    read_advice,
    shaping_id,
    suppression_id,
)
from mqcd.config.problems import BadConfiguration
from mqcd.config.settings import Rate

Write = Callable[[bytes], pathlib.Path]

_WHY = 'id="s-1" reason="r" since="2026-01-01T00:00:00Z" until="2026-02-01T00:00:00Z"'


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Write:
    def to_file(octets: bytes) -> pathlib.Path:
        path = tmp_path / "active.xml"
        path.write_bytes(octets)
        return path

    return to_file


def errors_of(path: pathlib.Path) -> list[tuple[int, str]]:
    with pytest.raises(BadConfiguration) as caught:
        read_advice(path)
    assert all(each.file == str(path) for each in caught.value.remarks)
    return [(each.line, each.path) for each in caught.value.remarks]


def suppression(recipient: str, reply: str = "550 no") -> Suppression:
    return Suppression(
        id=suppression_id(recipient), recipient=recipient, reply=reply, reason="gone", since=1, until=2
    )


# ---------------------------------------------------------------- back and forth


def test_what_is_written_reads_back(write: Write) -> None:
    shaping = Shaping(
        id=shaping_id("mx.example.net"),
        match="*.example.net",
        rate=Rate(count=100, per=3_600_000),
        maxserverconnections=5,
        retry_delays=(1_800_000, 7_200_000),
        reason="421 when more than 5 connections",
        evidence='last event "node/0/1234"',
        since=1_760_000_000_123,
        until=1_790_000_000_000,
    )
    gone = suppression("Gone@Example.org", '550 5.1.1 <no> such & "user"')
    advice = Advice(
        made=1_760_000_000_000,
        suppressions={"gone@example.org": gone, "0f" * 16: suppression("0f" * 16)},
        shapings=(shaping,),
    )
    assert read_advice(write(b"".join(document(advice)))) == advice


@given(st.text(max_size=80))
def test_no_words_of_a_peer_break_a_file(words: str) -> None:
    advice = Advice(suppressions={"a@b.org": suppression("a@b.org", words)})
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "active.xml")
        path.write_bytes(b"".join(document(advice)))
        (piece,) = read_advice(path).suppressions.values()
    assert len(piece.reply) == len(words)
    assert all(there == given or there == "?" for there, given in zip(piece.reply, words, strict=True))


def test_the_same_subject_has_the_same_id_whatever_its_case() -> None:
    assert suppression_id("A@Example.ORG") == suppression_id("a@example.org")
    assert suppression_id("a@example.org") != suppression_id("b@example.org")
    assert comparable("A.B@Bücher.example") == "a.b@xn--bcher-kva.example"


# ---------------------------------------------------------------- what is wrong


def test_a_file_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    assert errors_of(tmp_path / "none.xml") == [(0, "")]


@pytest.mark.parametrize(
    ("octets", "found"),
    [
        (b"", (1, "")),
        (b"<mailserver/>", (1, "mailserver")),
        (b"<advice/>", (1, "advice@version")),
        (b'<advice version="2"/>', (1, "advice@version")),
        (b'<advice version="1" made="now"/>', (1, "advice@made")),
        (b'<advice version="1">\n<hold/></advice>', (2, "hold")),
        (b'<advice version="1">\n<suppress>\n<x/></suppress></advice>', (3, "x")),
        (b'<!DOCTYPE a [<!ENTITY x "y">]><advice version="1"/>', (1, "")),
    ],
)
def test_what_is_no_advice_is_refused_with_its_line(
    write: Write, octets: bytes, found: tuple[int, str]
) -> None:
    assert found in errors_of(write(octets))


@pytest.mark.parametrize(
    ("element", "path"),
    [
        (f"<suppress {_WHY}/>", "suppress@recipient"),
        (f'<suppress recipient="a b@c" {_WHY}/>', "suppress@recipient"),
        (f'<suppress recipient="" {_WHY}/>', "suppress@recipient"),
        (f'<suppress recipient="a@b.org" rate="1/s" {_WHY}/>', "suppress@rate"),
        (f'<shape match="b.org" rate="many" {_WHY}/>', "shape@rate"),
        (f'<shape match="b.org" maxserverconnections="0" {_WHY}/>', "shape@maxserverconnections"),
        (f'<shape match="b.org" retry_delays="soon" {_WHY}/>', "shape@retry_delays"),
        (f'<shape match="" {_WHY}/>', "shape@match"),
        ('<shape match="b.org" id="1" reason="r" since="2026-01-01" until="x"/>', "shape@since"),
    ],
)
def test_each_attribute_that_does_not_fit_is_named(write: Write, element: str, path: str) -> None:
    found = errors_of(write(f'<advice version="1">\n{element}\n</advice>'.encode()))
    assert (2, path) in found


@pytest.mark.parametrize(
    "hidden", ["&#13;&#10;", "&#10;", "&#9;", "&#127;", "&#x85;", "&#x2028;", "&#x202E;"]
)
@pytest.mark.parametrize("name", ["reason", "evidence", "reply", "status", "id", "recipient"])
def test_control_characters_are_refused(write: Write, name: str, hidden: str) -> None:
    known = {"id": "s-1", "recipient": "a@b.org", "reason": "r"} | {name: f"550 no{hidden}250 ok"}
    told = " ".join(f'{key}="{value}"' for key, value in known.items())
    times = 'since="2026-01-01T00:00:00Z" until="2026-02-01T00:00:00Z"'
    found = errors_of(write(f'<advice version="1">\n<suppress {told} {times}/></advice>'.encode()))
    assert found == [(2, f"suppress@{name}")]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [os.mkfifo, pathlib.Path.mkdir])
def test_what_is_no_file_is_not_waited_for(
    tmp_path: pathlib.Path, make: Callable[[pathlib.Path], None]
) -> None:
    make(tmp_path / "active.xml")
    assert errors_of(tmp_path / "active.xml") == [(0, "")]


def test_all_errors_come_at_once(write: Write) -> None:
    lines = "\n".join(f'<suppress recipient="no address {n}@" {_WHY}/>' for n in range(7))
    found = errors_of(write(f'<advice version="1">\n{lines}\n</advice>'.encode()))
    assert [line for line, _ in found] == list(range(2, 9))
