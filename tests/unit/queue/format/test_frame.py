"""Frames: whole or not at all, and only where they belong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError
from mqcd.core.events import TRANSITIONS, Verb
from mqcd.queue.format import frame, transitions
from mqcd.queue.format.frame import BegunEntry, Entry, Kind, Locator, Mark, Take

SALT = frame.salt(3, 12)
u32 = st.integers(0, (1 << 32) - 1)
u64 = st.integers(0, (1 << 64) - 1)
locators = st.builds(Locator, u32, u32, u32)
entries = st.builds(
    Entry,
    mark=st.sampled_from(Mark),
    flags=st.integers(0, 3),
    old_segment=u32,
    old_ordinal=u32,
    content=locators,
    line=st.binary(max_size=50),
    note=st.binary(max_size=50),
)


def whole(parts: list[bytes], kind: Kind = Kind.ACCEPT, count: int = 2, salted: int = SALT) -> bytes:
    return frame.pack_header(salted, kind, parts, count, 7, 100, 99, 1_800_000_000_000) + b"".join(parts)


@given(
    st.sampled_from(Kind), st.lists(st.binary(max_size=40), max_size=4), u32, u32, u64, u64, u64, st.binary()
)
def test_a_header_comes_back_as_it_was(
    kind: Kind, parts: list[bytes], count: int, ordinal: int, sequence: int, synced: int, at: int, rest: bytes
) -> None:
    body = b"".join(parts)
    head = frame.pack_header(SALT, kind, parts, count, ordinal, sequence, synced, at)
    assert len(head) == frame.HEADER_SIZE
    expected = frame.Header(kind, len(body), count, ordinal, sequence, synced, at)
    assert frame.read_header(rest + head + body + rest, len(rest), SALT) == expected


def test_a_frame_cut_anywhere_is_none() -> None:
    data = whole([b"some", b"body"])
    assert frame.read_header(data, 0, SALT) is not None
    for length in range(len(data)):
        assert frame.read_header(data[:length], 0, SALT) is None


@given(st.data())
def test_a_changed_octet_makes_it_none(data: st.DataObject) -> None:
    octets = bytearray(whole([b"some", b"body"]))
    octets[data.draw(st.integers(0, len(octets) - 1))] ^= data.draw(st.integers(1, 255))
    assert frame.read_header(bytes(octets), 0, SALT) is None


@pytest.mark.parametrize(("epoch", "segment"), [(2, 12), (3, 11), (12, 3)])
def test_a_frame_of_another_epoch_or_segment_is_none(epoch: int, segment: int) -> None:
    octets = whole([b"body"], salted=frame.salt(epoch, segment))
    assert frame.read_header(octets, 0, SALT) is None


@given(st.binary(max_size=120), st.integers(0, 130))
def test_arbitrary_octets_are_no_frame(data: bytes, offset: int) -> None:
    assert frame.read_header(frame.MAGIC + data, offset, SALT) is None


def test_a_kind_that_is_not_known_is_none() -> None:
    data = bytearray(whole([b""]))
    head = frame.pack_header(SALT, 77, [], 0, 0, 1, 0, 0)
    assert frame.read_header(head, 0, SALT) is None
    assert frame.read_header(bytes(data), 0, SALT) is not None


@given(
    st.binary(max_size=60),
    st.one_of(st.none(), st.binary(max_size=60)),
    u32,
    st.binary(max_size=9),
    st.binary(max_size=9),
    st.booleans(),
)
def test_a_submission_comes_back_as_it_was(
    lines: bytes, content: bytes | None, spooled: int, before: bytes, memo: bytes, attempted: bool
) -> None:
    packed = b"".join(frame.pack_submission(lines, content, spooled, memo, attempted=attempted))
    body = memoryview(before + packed)
    accepted, end = frame.read_submission(body, len(before))
    assert end == len(body)
    assert accepted.lines == lines == bytes(body[accepted.lines_at :][: len(lines)])
    assert accepted.inline is (content is not None)
    assert accepted.memo == memo
    assert accepted.attempted is attempted
    if content is None:
        assert accepted.size == spooled
    else:
        assert bytes(body[accepted.content_at :][: accepted.size]) == content


@given(st.lists(entries, max_size=4), st.binary(max_size=9))
def test_entries_come_back_with_their_places(given_entries: list[Entry], before: bytes) -> None:
    body = memoryview(before + b"".join(map(frame.pack_entry, given_entries)))
    found = list(frame.read_entries(body, len(before), len(given_entries)))
    assert [entry for _, entry in found] == given_entries
    assert [bytes(body[at:][: len(entry.line)]) for at, entry in found] == [e.line for e in given_entries]


@given(
    st.text(max_size=30),
    st.lists(st.builds(BegunEntry, u32, u32, u64, u32, st.integers(0, 65535)), max_size=4),
)
def test_begun_entries_come_back(destination: str, given_entries: list[BegunEntry]) -> None:
    body = memoryview(frame.pack_begun(destination, given_entries))
    assert frame.read_begun(body, len(given_entries)) == (destination, given_entries)


def test_more_attempts_than_fit_are_the_most_that_fit() -> None:
    body = memoryview(frame.pack_begun("d", [BegunEntry(1, 2, 3, 4, 70000)]))
    assert frame.read_begun(body, 1)[1][0].attempt == 65535


@given(st.builds(Take, st.text(max_size=30), u64, u32, u64), st.binary(max_size=9))
def test_a_take_comes_back(take: Take, rest: bytes) -> None:
    packed = frame.pack_take(take)
    assert frame.read_take(memoryview(packed + rest)) == (take, len(packed))


ENTRY = Entry(Mark.DEFERRED, frame.ALIVE, 4, 5, Locator(4, 4200, 26), b"a line\n", b"a note")
BODIES: dict[str, tuple[bytes, Callable[[memoryview], object]]] = {
    "submission": (
        b"".join(frame.pack_submission(b"line\n", b"content", 7)),
        lambda body: frame.read_submission(body, 0),
    ),
    "entries": (
        frame.pack_entry(ENTRY) * 2,
        lambda body: list(frame.read_entries(body, 0, 2)),
    ),
    "begun": (
        frame.pack_begun("mx.example", [BegunEntry(1, 2, 3, 4, 5)] * 2),
        lambda body: frame.read_begun(body, 2),
    ),
    "take": (
        frame.pack_take(Take("deferred/T0/M1-0.mqc", 15, 3, 99)),
        frame.read_take,
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_cut_anywhere_is_refused(name: str) -> None:
    body, read = BODIES[name]
    read(memoryview(body))
    for length in range(len(body)):
        with pytest.raises(DecodeError):
            read(memoryview(body[:length]))


def test_a_report_frame_is_submissions_and_then_entries() -> None:
    parts = [(2).to_bytes(4, "little")]
    parts += frame.pack_submission(b"one\n", b"1", 0) + frame.pack_submission(b"two\n", None, 9)
    body = memoryview(b"".join([*parts, frame.pack_entry(ENTRY)]))
    accepted, offset = transitions.submissions(Kind.REPORT, body)
    assert [(each.lines, each.inline, each.size) for each in accepted] == [
        (b"one\n", True, 1),
        (b"two\n", False, 9),
    ]
    [(_, entry)] = transitions.entries(Kind.REPORT, body, offset, 1)
    assert entry == ENTRY


def test_each_kind_but_three_has_entries() -> None:
    """A kind that readers do not know to have any would be passed over, and its records lost."""
    assert set(Kind) - transitions.WITH_ENTRIES == {Kind.ACCEPT, Kind.BEGUN, Kind.NOTE}


def test_each_mark_but_four_has_a_verb() -> None:
    silent = {Mark.TAKEN, Mark.CARRIED, Mark.PARKED, Mark.PURGED}
    assert set(Mark) - transitions.VERB_OF.keys() == silent


def test_each_verb_of_a_transition_is_recorded() -> None:
    by_frame = {Verb.ACCEPTED, Verb.ATTEMPTED}
    assert sorted(transitions.VERB_OF.values()) == sorted(TRANSITIONS - by_frame)
