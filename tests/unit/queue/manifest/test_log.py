"""The MANIFEST: whole edits or none, damage refused, a file whose sync failed never trusted again."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd import __version__
from mqcd.core.errors import DecodeError, StoreDamaged
from mqcd.core.events import Verb
from mqcd.disk.durable import Disk
from mqcd.queue.manifest import log as manifests
from mqcd.queue.manifest.log import Manifest
from mqcd.queue.manifest.state import ClusterState, Edit, ManifestState
from tests.fakes.disk import FaultyDisk

numbers = st.integers(0, 1 << 60)
optional = st.one_of(st.none(), numbers)
clusters = st.builds(
    ClusterState,
    name=st.builds("incoming/M{}-{}.mqc".format, st.integers(1, 99), st.integers(0, 9)),
    size=numbers,
    cursor=numbers,
    left=numbers,
    octets=numbers,
    received=numbers,
    due=numbers,
    due_last=numbers,
)
edits = st.builds(
    Edit,
    epoch=optional,
    first_live=optional,
    last_segment=optional,
    exported=optional,
    sequence=optional,
    spid=optional,
    clock=optional,
    totals=st.one_of(st.none(), st.dictionaries(st.sampled_from(sorted(Verb)).map(str), numbers, max_size=3)),
    add=st.lists(clusters, max_size=3).map(tuple),
    end=st.lists(st.text(max_size=9), max_size=3).map(tuple),
)


def cluster(number: int, **changes: Any) -> ClusterState:
    values = {"size": 100, "cursor": 15, "left": 3, "octets": 300, "received": 5, **changes}
    return ClusterState(name=f"incoming/M{number}-0.mqc", **values)


def line_of(body: Any) -> bytes:
    text = json.dumps(body).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "MANIFEST"


def state_at(path: Path) -> ManifestState:
    state = manifests.read(Disk(), path)
    assert state is not None
    return state


def opened(disk: Disk, path: Path) -> Manifest:
    manifest = Manifest(disk, path, ManifestState(epoch=1))
    manifest.write_anew()
    return manifest


@given(edits, st.booleans())
def test_an_edit_comes_back_as_it_was(edit: Edit, first: bool) -> None:
    line = manifests.encode(edit, first=first)
    assert line.count(b"\n") == 1
    assert manifests.decode(line[:-1]) == (edit, manifests.FORMAT if first else None)


@given(st.lists(edits, max_size=6))
def test_a_whole_state_amounts_to_its_edits(given_edits: list[Edit]) -> None:
    state = ManifestState()
    for edit in given_edits:
        state.apply(edit)
    again = ManifestState(edit=state.edit - 1)
    again.apply(state.whole())
    assert again == state


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner)),
    max_leaves=6,
)
_keys = st.sampled_from(["epoch", "totals", "add", "end", "format", "clock"])


@given(st.one_of(_json, st.dictionaries(_keys, _json)))
def test_any_json_with_a_good_checksum_raises_decode_errors(body: Any) -> None:
    with suppress(DecodeError):
        edit, _ = manifests.decode(line_of(body)[:-1])
        ManifestState().apply(edit)


@pytest.mark.parametrize(
    "body",
    [
        {"totals": {"sung": 3}},
        {"totals": 7},
        {"totals": {"accepted": "many"}},
        {"add": [{"name": "incoming/M1-0.mqc"}]},
        {"add": [{"name": "cellar/M1-0.mqc", "size": 1, "cursor": 1, "left": 1, "octets": 1, "received": 1}]},
        {"add": 7},
        {"epoch": "one"},
        {"later": 1},
        [],
        "text",
    ],
)
def test_an_edit_that_makes_no_sense_is_damage(path: Path, body: Any) -> None:
    opened(Disk(), path).close()
    first = path.read_bytes()
    for line in (line_of(body), line_of(body)[:-1]):
        path.write_bytes(first + line)
        with pytest.raises(StoreDamaged, match="line 2"):
            manifests.read(Disk(), path)


def test_no_file_is_none(path: Path) -> None:
    assert manifests.read(Disk(), path) is None


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\0" * 600, b"mqcd", line_of({"epoch": 1}), line_of({"format": 1})[:-1]]
)
def test_a_file_without_a_whole_first_line_is_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match=r"MANIFEST.*mqcd fsck"):
        manifests.read(Disk(), path)


def test_a_newer_format_is_refused_by_its_number(path: Path) -> None:
    path.write_bytes(line_of({"format": 4, "epoch": 1}))
    with pytest.raises(StoreDamaged, match=r"format 4 .* newer mqcd"):
        manifests.read(Disk(), path)
    path.write_bytes(line_of({"format": 4, "writer": "12.3.0", "news": 1}))
    with pytest.raises(StoreDamaged, match=r"format 4 is not known here; mqcd 12\.3\.0 reads it"):
        manifests.read(Disk(), path)


def test_an_older_format_is_refused_by_its_number(path: Path) -> None:
    path.write_bytes(line_of({"format": 1, "writer": "0.1.0", "swept": 7}))
    with pytest.raises(StoreDamaged, match=r"format 1 is no longer read; let mqcd 0\.1\.0 empty the queue"):
        manifests.read(Disk(), path)


def test_the_newest_version_is_kept_after_an_older_start(path: Path) -> None:
    for writer, known in (("", __version__), ("0.0.9", __version__), ("12.3.0", "12.3.0")):
        manifest = Manifest(Disk(), path, ManifestState(writer=writer))
        manifest.write_anew()
        manifest.commit(Edit(first_live=2))
        manifest.close()
        state = manifests.read(Disk(), path)
        assert state is not None
        assert state.writer == known


def test_edits_follow_one_another(path: Path) -> None:
    manifest = opened(Disk(), path)
    manifest.commit(Edit(add=(cluster(1), cluster(2)), first_live=7, totals={"accepted": 4}))
    manifest.commit(Edit(add=(cluster(2, cursor=50, left=1),), end=("incoming/M1-0.mqc",)))
    manifest.close()
    state = state_at(path)
    assert state.whole() == manifest.state.whole()
    assert state.clusters == {"incoming/M2-0.mqc": cluster(2, cursor=50, left=1)}
    assert (state.first_live, state.totals[Verb.ACCEPTED]) == (7, 4)


def test_a_last_edit_cut_anywhere_did_not_happen(path: Path) -> None:
    manifest = opened(Disk(), path)
    manifest.commit(Edit(add=(cluster(1),)))
    before, data = manifest.state.whole(), path.read_bytes()
    manifest.commit(Edit(add=(cluster(2),), first_live=9))
    whole = path.read_bytes()
    for length in range(len(data), len(whole) - 1):
        for octets in (whole[:length], whole[:length].ljust(len(whole), b"\0")):
            # What lies in the page cache may come out as zeros, up to the new length of the file.
            path.write_bytes(octets)
            state = state_at(path)
            assert state.whole() == before
            assert (state.dropped > 0) is (len(octets) > len(data))
    for octets in (whole[:-1], whole[:-1] + bytes(600), whole):
        # Nothing but the line feed is missing: it was written, and what is written may count.
        path.write_bytes(octets)
        state = state_at(path)
        assert state.whole() == manifest.state.whole()
        assert state.dropped == 0


def lines_of(path: Path, start: int, length: int) -> tuple[bytes, bytes]:
    """A MANIFEST of one line of `start` octets, and the same with a second line of `length` octets."""
    room = start - len(manifests.encode(Edit(writer=""), first=True))
    first = manifests.encode(Edit(writer="b" * room), first=True)
    second = manifests.encode(Edit(writer="c" * (length - len(manifests.encode(Edit(writer=""))))))
    assert (len(first), len(second)) == (start, length)
    return first, first + second


@pytest.mark.parametrize(
    ("start", "length"),
    [(100, 60), (500, 60), (511, 600), (512, 512), (100, 1300), (1000, 1049), (513, 1537)],
)
def test_any_loss_of_sectors_is_an_edit_that_did_not_happen(path: Path, start: int, length: int) -> None:
    _, whole = lines_of(path, start, length)
    edges = [start, *range((start // 512 + 1) * 512, len(whole), 512), len(whole)]
    parts = [(at, end) for at, end in pairwise(edges) if at < end]
    for lost in range(1, 1 << len(parts)):
        octets = bytearray(whole)
        for number, (at, end) in enumerate(parts):
            if lost >> number & 1:
                octets[at:end] = bytes(end - at)
        path.write_bytes(octets)
        state = state_at(path)
        # Perhaps the last sector had nothing but the line feed.
        came = bytes(octets[start:]).rstrip(b"\0") == whole[start:-1]
        assert (state.writer[:1] == "c") is came
        assert (state.dropped > 0) is not came


@pytest.mark.parametrize(("start", "length"), [(100, 60), (500, 60), (511, 600), (512, 512), (100, 1300)])
def test_a_bit_that_turns_over_in_the_last_edit_is_refused(path: Path, start: int, length: int) -> None:
    _, whole = lines_of(path, start, length)
    step = 1 if length < 100 else 7
    for at in range(start, len(whole), step):
        for bit in range(8):
            octets = bytearray(whole)
            octets[at] ^= 1 << bit
            path.write_bytes(octets)
            with pytest.raises(StoreDamaged, match=r"line 2:"):
                manifests.read(Disk(), path)


def test_damage_before_the_last_edit_is_refused(path: Path) -> None:
    manifest = opened(Disk(), path)
    for number in range(3):
        manifest.commit(Edit(add=(cluster(number),)))
    data = path.read_bytes()
    last = data[:-1].rfind(b"\n")
    for at in range(last):
        octets = bytearray(data)
        octets[at] ^= 0x10
        path.write_bytes(octets)
        with pytest.raises(StoreDamaged, match=r"line [1-4]:"):
            manifests.read(Disk(), path)


@pytest.mark.parametrize("value", [0x20, ord("{"), 0xFF])
def test_a_damaged_line_feed_is_no_torn_edit(path: Path, value: int) -> None:
    manifest = opened(Disk(), path)
    for number in range(3):
        manifest.commit(Edit(add=(cluster(number),)))
    data = path.read_bytes()
    ends = [at for at, octet in enumerate(data) if octet == 10]
    for at in ends:
        octets = bytearray(data)
        octets[at] = value
        for cut in {len(data), len(data) - 20} if at < ends[-1] - 20 else {len(data)}:
            path.write_bytes(octets[:cut])
            with pytest.raises(StoreDamaged, match=r"line [1-4]:|no whole line"):
                manifests.read(Disk(), path)


def test_a_long_log_is_written_anew(path: Path) -> None:
    manifest = opened(Disk(), path)
    many = tuple(cluster(number) for number in range(2000))
    sizes = []
    for _ in range(9):
        manifest.commit(Edit(add=many))
        sizes.append(path.stat().st_size)
    assert min(sizes[4:]) < manifests.COMPACT_AT < max(sizes)
    manifest.commit(Edit(end=tuple(each.name for each in many[1:])))
    assert state_at(path).whole() == manifest.state.whole()
    assert len(manifest.state.clusters) == 1


def test_a_large_state_is_not_rewritten_by_small_edits(path: Path) -> None:
    manifest = opened(Disk(), path)
    manifest.write_anew(ManifestState(imports=("i" * manifests.COMPACT_AT,)))
    written = path.stat()
    for number in range(3):
        manifest.commit(Edit(clock=number))
    assert path.stat().st_ino == written.st_ino
    assert state_at(path).whole() == manifest.state.whole()


@pytest.mark.parametrize("operation", ["pwritev", "datasync"])
def test_a_failed_file_is_never_written_again(path: Path, operation: str) -> None:
    disk = FaultyDisk()
    manifest = opened(disk, path)
    manifest.commit(Edit(add=(cluster(1),)))
    before = manifest.state
    failed = path.stat().st_ino
    disk.fail(operation, "*/MANIFEST")
    with pytest.raises(OSError, match="Input/output error"):
        manifest.commit(Edit(add=(cluster(2),)))
    assert manifest.state == before
    manifest.commit(Edit(add=(cluster(3),)))
    assert path.stat().st_ino != failed
    assert set(state_at(path).clusters) == {"incoming/M1-0.mqc", "incoming/M3-0.mqc"}


@pytest.mark.parametrize("operation", ["pwritev", "datasync"])
def test_an_edit_that_failed_is_not_there_after_a_kill(path: Path, operation: str) -> None:
    disk = FaultyDisk()
    manifest = opened(disk, path)
    manifest.commit(Edit(add=(cluster(1),)))
    disk.fail(operation, "*/MANIFEST")
    with pytest.raises(OSError, match="Input/output error"):
        manifest.commit(Edit(add=(cluster(2),)))
    assert set(state_at(path).clusters) == {"incoming/M1-0.mqc"}


def test_an_edit_whose_rename_cannot_be_synced_is_taken_back(path: Path) -> None:
    disk = FaultyDisk()
    manifest = opened(disk, path)
    disk.fail("datasync", times=2)
    with pytest.raises(OSError, match="Input/output error"):
        manifest.commit(Edit(add=(cluster(1),)))
    disk.fail("sync_dir")
    with pytest.raises(OSError, match="Input/output error"):
        manifest.commit(Edit(add=(cluster(2),)))
    assert not state_at(path).clusters
    manifest.commit(Edit(add=(cluster(3),)))
    assert set(state_at(path).clusters) == {"incoming/M3-0.mqc"}


def test_every_failed_rewrite_leaves_a_past_state(path: Path) -> None:
    disk = FaultyDisk()
    opened(disk, path).close()
    calls = len([call for call in disk.calls if call.operation != "close"])
    for passes in range(calls):
        manifest = opened(disk, path)
        manifest.commit(Edit(add=(cluster(1),)))
        before = manifest.state
        disk.fail(passes=passes)
        with suppress(OSError):
            manifest.write_anew()
        disk.mend()
        assert state_at(path).clusters == before.clusters
        manifest.commit(Edit(add=(cluster(2),)))
        assert set(state_at(path).clusters) == {"incoming/M1-0.mqc", "incoming/M2-0.mqc"}
        manifest.close()


def test_commits_are_synced_before_they_count(path: Path) -> None:
    disk = FaultyDisk()
    manifest = opened(disk, path)
    assert disk.order("pwritev", "datasync", "rename", "sync_dir") == [
        ("pwritev", "MANIFEST.tmp"),
        ("datasync", "MANIFEST.tmp"),
        ("rename", "MANIFEST"),
        ("sync_dir", path.parent.name),
    ]
    disk.calls.clear()
    manifest.commit(Edit(clock=5))
    assert disk.order("pwritev", "datasync") == [("pwritev", "MANIFEST"), ("datasync", "MANIFEST")]


def test_an_edit_not_taken_back_leaves_the_disk_in_doubt(path: Path) -> None:
    disk = FaultyDisk()
    manifest = opened(disk, path)
    disk.fail("datasync", times=2)
    with pytest.raises(OSError, match="Input/output error"):
        manifest.commit(Edit(add=(cluster(1),)))
    doubts = [manifest.uncertain]
    manifest.take_back()
    doubts.append(manifest.uncertain)
    assert doubts == [True, False]
    assert not state_at(path).clusters
