"""Key files: written with older ones, without what is too old, and read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mqcd.core.errors import DecodeError
from mqcd.core.queueing.idempotency import Used
from mqcd.disk.durable import Disk
from mqcd.queue.format import keys
from mqcd.queue.format.keys import HEADER, RECORD
from mqcd.queue.keys.file import MOST, OpenFile, WriteKeys, to_merge, write_keys
from mqcd.queue.manifest.state import KeyFile
from tests.unit.queue.format.test_keys import DIGEST, name, packed


def written(root: Path, segment: int, numbers: range, merged: list[str], since: int = 0) -> KeyFile | None:
    records = b"".join(packed(number, segment) for number in numbers)
    task = WriteKeys(queue_root=root, segment=segment, records=records, merged=merged, since=since)
    return write_keys(Disk(), task).file


async def uses(root: Path, file: KeyFile, numbers: range) -> list[Used | None]:
    opened = OpenFile.open(Disk(), root, file)
    with ThreadPoolExecutor(1) as executor:
        found = [await opened.find(executor, name(number)) for number in numbers]
    opened.close()
    return found


def sized(*records: int) -> list[KeyFile]:
    return [
        KeyFile(name=f"keys/K{number}.keys", records=each, newest=0) for number, each in enumerate(records)
    ]


async def test_a_file_holds_the_keys_of_older_ones(tmp_path: Path) -> None:
    first = written(tmp_path, 1, range(100), [])
    assert first == KeyFile(name="keys/K1.keys", records=100, newest=1099)
    second = written(tmp_path, 2, range(100, 150), [first.name])
    assert second == KeyFile(name="keys/K2.keys", records=150, newest=1149)
    assert await uses(tmp_path, second, range(151)) == [
        *(Used(number, DIGEST, 1000 + number) for number in range(150)),
        None,
    ]


async def test_keys_that_are_too_old_are_left_out(tmp_path: Path) -> None:
    first = written(tmp_path, 1, range(100), [])
    assert first is not None
    second = written(tmp_path, 2, range(100, 150), [first.name], since=1120)
    assert second is not None
    assert second.records == 30
    assert written(tmp_path, 3, range(150, 160), [second.name], since=5000) is None


async def test_a_record_that_does_not_check_is_absent(tmp_path: Path) -> None:
    file = written(tmp_path, 1, range(100), [])
    assert file is not None
    path = tmp_path / file.name
    data = bytearray(path.read_bytes())
    at = data.index(name(7))
    data[at + 20] ^= 1
    path.write_bytes(data)
    assert await uses(tmp_path, file, range(7, 9)) == [None, Used(8, DIGEST, 1008)]
    merged = WriteKeys(queue_root=tmp_path, segment=2, records=b"", merged=[file.name], since=0)
    assert write_keys(Disk(), merged).bad == 1


@pytest.mark.parametrize("harm", ["cut", "missing"])
def test_an_older_file_that_cannot_be_read_stays(tmp_path: Path, harm: str) -> None:
    first = written(tmp_path, 1, range(100), [])
    assert first is not None
    path = tmp_path / first.name
    path.write_bytes(path.read_bytes()[:10]) if harm == "cut" else path.unlink()
    task = WriteKeys(queue_root=tmp_path, segment=2, records=packed(200, 2), merged=[first.name], since=0)
    done = write_keys(Disk(), task)
    assert done.merged == []
    assert done.file is not None
    assert done.file.records == 1


def test_a_file_whose_index_is_damaged_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, 1, range(100), [])
    assert file is not None
    path = tmp_path / file.name
    data = bytearray(path.read_bytes())
    data[HEADER + 100 * RECORD] ^= 1
    path.write_bytes(data)
    with pytest.raises(DecodeError):
        OpenFile.open(Disk(), tmp_path, file)


def test_the_prints_say_which_names_may_be_there(tmp_path: Path) -> None:
    file = written(tmp_path, 1, range(20_000), [])
    assert file is not None
    opened = OpenFile.open(Disk(), tmp_path, file)
    try:
        assert len(opened.prints) == 4 * 20_000
        assert all(opened.perhaps(name(number), keys.top_of(name(number))) for number in range(20_000))
        others = [opened.perhaps(name(n), keys.top_of(name(n))) for n in range(20_000, 30_000)]
        assert sum(others) < 5
    finally:
        opened.close()


def test_files_are_rewritten_until_one_is_larger() -> None:
    files = sized(100_000, 400, 200, 100)
    assert [each.records for each in to_merge(files, 100)] == [100, 200, 400]
    assert [each.records for each in to_merge(files, 50)] == []
    assert [each.records for each in to_merge(files, 150_000)] == [100, 200, 400, 100_000]


def test_a_large_file_is_not_rewritten() -> None:
    assert to_merge(sized(MOST - 10), 20_000) == []
