"""Files of the maildrop: their form, and how they are written."""

from __future__ import annotations

import errno
import json
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError
from mqcd.disk.durable import Buffer, Disk
from mqcd.sendmail.letter import MAX_RECIPIENTS, MOST, Letter
from mqcd.sendmail.maildrop import decode, drop, encode

LETTER = Letter(
    sender="alice",
    author="Alice",
    recipients=("b@x", "root"),
    content=b"Subject: s\r\n\r\nline\r\n",
    notify="FAILURE",
    envelope_id="some id",
)


def test_a_letter_comes_back() -> None:
    assert decode(encode(LETTER)) == LETTER


def changed(**fields: object) -> bytes:
    line, _, content = encode(LETTER).partition(b"\n")
    return json.dumps({**json.loads(line), **fields}).encode() + b"\n" + content


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{}\n",
        encode(LETTER)[:-1],
        encode(LETTER) + b"x",
        changed(v=2),
        changed(sender=None),
        changed(recipients="b@x"),
        changed(recipients=[]),
        changed(recipients=["a\r\nb"]),
        changed(recipients=[1]),
        changed(author=3),
        changed(notify="NEVER BODY=7BIT"),
        b"[" * 100_000 + b"\n",
        *(
            encode(replace(LETTER, content=content))
            for content in (b"abc", b"abc\n", b"abc\r", b"a\nb\r\n", b"a\rb\r\n", b"a\0\r\n")
        ),
    ],
)
def test_what_is_no_letter_is_refused(octets: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(octets)


@given(st.binary(max_size=200))
def test_a_decoder_raises_its_own_error_alone(octets: bytes) -> None:
    try:
        assert encode(decode(octets))
    except DecodeError:
        return


def test_a_file_is_whole_before_it_has_its_name(tmp_path: Path) -> None:
    calls: list[str] = []

    class Watched(Disk):
        def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
            calls.append("write")
            return super().pwritev(fd, buffers, offset)

        def datasync(self, fd: int) -> None:
            calls.append("sync")
            super().datasync(fd)

        def rename(self, source: Path, target: Path) -> None:
            calls.append("rename")
            super().rename(source, target)

    made = drop(tmp_path, LETTER, 1, Watched())
    assert calls == ["write", "sync", "rename", "sync"]
    assert [path.name for path in tmp_path.iterdir()] == [made.name]
    assert made.name.endswith(".mail")
    assert stat.S_IMODE(made.stat().st_mode) == 0o640
    assert decode(made.read_bytes()) == LETTER


@pytest.mark.parametrize("failing", ["pwritev", "datasync", "rename", "sync_appended"])
def test_nothing_stays_of_a_failed_write(tmp_path: Path, failing: str) -> None:
    class Full(Disk):
        pass

    def fail(*_: object) -> None:
        raise OSError(28, "full")

    disk = Full()
    setattr(disk, failing, fail)
    with pytest.raises(OSError, match="full"):
        drop(tmp_path, LETTER, 1, disk)
    assert list(tmp_path.iterdir()) == []


def test_what_the_server_would_not_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=str(MOST)):
        drop(tmp_path, replace(LETTER, content=bytes(MOST + 1)), 1)
    assert list(tmp_path.iterdir()) == []


def test_an_envelope_that_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    held = replace(LETTER, recipients=("ä" * 512,) * (MAX_RECIPIENTS // 1024))
    assert decode(drop(tmp_path, held, 1).read_bytes()) == held
    with pytest.raises(OSError, match="envelopes of at most") as caught:
        drop(tmp_path, replace(LETTER, recipients=("b",) * MAX_RECIPIENTS), 1)
    assert (caught.value.errno, len(list(tmp_path.iterdir()))) == (errno.EFBIG, 1)
