"""A commit happens whole, whenever the writer dies."""

from __future__ import annotations

import json
import math
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.disk.durable import Disk
from mqcd.pipeline.store.store import FORMAT, Commit, PipelineBusy, Store, TablesOfAnotherFormat
from tests.e2e.kit.waiting import poll


def staged(store: Store, batch: int) -> str:
    path = store.staging(batch).path / "new.parquet"
    path.write_bytes(b"new")
    return str(path.relative_to(store.root))


def table(store: Store) -> dict[str, bytes]:
    return {Path(name).name: Path(name).read_bytes() for name in store.files("t")}


def old_file(store: Store) -> None:
    path = store.table("t") / "day=2026-11-18" / "old.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"old")


def commit(store: Store) -> Commit:
    return Commit(
        batch=1,
        taken={"n-0-": "1"},
        move=[[staged(store, 1), "t/day=2026-11-18/new.parquet"]],
        remove=["t/day=2026-11-18/old.parquet"],
    )


def test_a_commit_moves_and_removes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old_file(store)
    with store.writing() as last:
        assert last == Commit()
        done = commit(store)
        store.commit(done)
    assert table(store) == {"new.parquet": b"new"}
    assert store.last() == done


@pytest.mark.parametrize(("told", "says"), [({}, "move it away"), ({"format": FORMAT + 1}, "newer")])
def test_tables_of_another_format_are_neither_read_nor_added_to(
    tmp_path: Path, told: dict[str, int], says: str
) -> None:
    old_file(Store(tmp_path))
    (tmp_path / "_log").mkdir()
    (tmp_path / "_log" / "0000000001.json").write_text(json.dumps({"batch": 1, **told}))
    with pytest.raises(TablesOfAnotherFormat, match=says), Store(tmp_path).writing():
        pass
    with pytest.raises(TablesOfAnotherFormat, match=says):
        Store(tmp_path).files("t")
    assert (tmp_path / "t" / "day=2026-11-18" / "old.parquet").exists()


def test_what_a_newer_version_added_to_a_commit_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "_log").mkdir()
    told = {"format": FORMAT, "batch": 7, "last_hour": 3, "of_tomorrow": [1]}
    (tmp_path / "_log" / "0000000007.json").write_text(json.dumps(told))
    assert Store(tmp_path).last() == Commit(batch=7, last_hour=3)


def test_a_commit_waits_for_who_reads_and_shows_itself_whole(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old_file(store)
    with store.writing():
        store.commit(Commit(batch=1, move=[[staged(store, 1), "t/day=2026-11-18/first.parquet"]]))
    before = table(store)
    written = threading.Event()

    def write() -> None:
        with store.writing():
            store.commit(replace(commit(store), batch=2))
        written.set()

    writer = threading.Thread(target=write)
    with store.still(), store.still():
        writer.start()
        poll(lambda: store.last().batch == 2, "the commit")
        assert table(store) == before
        assert not written.is_set()
    writer.join()
    assert table(store).keys() == {"first.parquet", "new.parquet"}


def test_a_reader_that_does_not_end_holds_up_nobody_for_ever(tmp_path: Path) -> None:
    store = Store(tmp_path, patience=0.1)
    old_file(store)
    with store.writing():
        store.commit(commit(store))
    with store.still(), store.writing():
        store.commit(Commit(batch=2, remove=["t/day=2026-11-18/new.parquet"]))
        assert table(store) == {}


class Told(Disk):
    """Says whether anybody had to wait for a lock."""

    waited = False

    def lock(self, fd: int, *, exclusive: bool) -> bool:
        got = super().lock(fd, exclusive=exclusive)
        self.waited = self.waited or not got
        return got


def test_the_first_commit_waits_for_who_reads_too(tmp_path: Path) -> None:
    disk = Told()
    store = Store(tmp_path, disk, patience=0.1)
    old_file(store)
    with store.writing(), store.still():
        store.commit(commit(store))
    assert disk.waited


def test_tables_that_do_not_exist_can_be_read_in_peace(tmp_path: Path) -> None:
    with Store(tmp_path / "nowhere").still():
        assert not (tmp_path / "nowhere").exists()


def test_what_was_not_committed_never_happened(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old_file(store)
    with store.writing():
        staged(store, 1)
    with store.writing() as last:
        assert last == Commit()
        assert not (tmp_path / "_staging").exists()
    assert table(store) == {"old.parquet": b"old"}


class Killed(Exception):
    """The writer dies here."""


class DiesAfterCommit(Store):
    """Dies when the commit is durable and before anything has moved."""

    def _apply(self, commit: Commit) -> None:
        if commit.batch:
            raise Killed


def test_who_is_killed_after_the_commit_is_finished_by_the_next(tmp_path: Path) -> None:
    store = DiesAfterCommit(tmp_path)
    old_file(store)
    with pytest.raises(Killed), store.writing():
        store.commit(commit(store))
    assert table(store) == {"old.parquet": b"old"}
    with Store(tmp_path).writing() as last:
        assert (last.batch, last.taken) == (1, {"n-0-": "1"})
    assert table(store) == {"new.parquet": b"new"}


def test_nobody_else_reads_the_tables(tmp_path: Path) -> None:
    with Store(tmp_path / "pipeline").writing():
        assert (tmp_path / "pipeline").stat().st_mode & 0o777 == 0o700


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    with Store(tmp_path).writing(), pytest.raises(PipelineBusy), Store(tmp_path).writing():
        pass


def test_who_comes_second_is_told_who_writes(tmp_path: Path) -> None:
    with (
        Store(tmp_path).writing("mqcd pipeline stream"),
        pytest.raises(PipelineBusy, match=rf"^mqcd pipeline stream \(process {os.getpid()}\) writes the"),
        Store(tmp_path).writing(),
    ):
        pass


def test_each_attempt_at_a_batch_has_a_place_of_its_own(tmp_path: Path) -> None:
    """Executors of a driver that was killed may go on for a while."""
    store = Store(tmp_path)
    assert store.staging(7).path != store.staging(7).path


def test_what_failed_before_its_commit_takes_no_room(tmp_path: Path) -> None:
    """It may be what filled the disk that the queue lies on."""
    store = Store(tmp_path)
    with pytest.raises(IsADirectoryError), store.writing():
        (store.root / staged(store, 1)).parent.write_bytes(b"")
    assert not list((tmp_path / "_staging").glob("*"))
    store = DiesAfterCommit(tmp_path)
    old_file(store)
    with pytest.raises(Killed), store.writing():
        store.commit(commit(store))
    # What was committed is all that there is of it.
    assert len(list((tmp_path / "_staging").glob("*/new.parquet"))) == 1


def test_an_account_begins_with_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "_ledger").mkdir()
    (tmp_path / "_ledger" / "left").write_bytes(b"")
    with Store(tmp_path).writing(), Store(tmp_path).accounting() as own:
        assert not own.exists()
        own.mkdir()
    assert not own.exists()


def test_who_has_patience_writes_when_the_other_one_is_done(tmp_path: Path) -> None:
    written: list[Commit] = []

    def write() -> None:
        with Store(tmp_path).writing(patience=60) as last:
            written.append(last)

    store = Store(tmp_path)
    waiting = threading.Thread(target=write)
    with store.writing():
        waiting.start()
        with pytest.raises(PipelineBusy), Store(tmp_path).writing(patience=0.1):
            pass
        assert not written
        done = commit(store)
        store.commit(done)
    waiting.join()
    assert written == [done], "and knows what that one did"


def test_who_is_told_to_stop_waits_no_longer(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with (
        Store(tmp_path).writing(),
        pytest.raises(PipelineBusy),
        Store(tmp_path).writing(patience=math.inf, stop=stop),
    ):
        pass


def test_one_stream_admits_others_between_its_batches(tmp_path: Path) -> None:
    with Store(tmp_path).streaming():
        with (
            pytest.raises(PipelineBusy, match=rf"^mqcd pipeline stream \(process {os.getpid()}\) writes the"),
            Store(tmp_path).streaming(),
        ):
            pass
        with Store(tmp_path).writing():
            pass


def test_who_waits_for_long_says_for_whom(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        Store(tmp_path).writing("mqcd pipeline ledger"),
        pytest.raises(PipelineBusy),
        Store(tmp_path, patience=0.05).writing("mqcd pipeline stream", patience=0.1),
    ):
        pass
    (said,) = caplog.messages
    assert said.startswith("mqcd pipeline stream ")
    assert f"mqcd pipeline ledger (process {os.getpid()})" in said


def test_java_and_the_system_mean_the_same_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "deep")
    assert Store(tmp_path / "link" / ".." / "tables").root == (tmp_path / "elsewhere" / "tables").resolve()
    # Executors elsewhere may have another directory under the same link.
    assert Store(tmp_path / "link").root == tmp_path / "link"
    monkeypatch.chdir(tmp_path)
    assert Store(Path("tables")).root == tmp_path / "tables"
