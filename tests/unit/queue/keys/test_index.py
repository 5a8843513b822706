"""Keys of a shard over its files: what is new is certainly new."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mqcd.core.model import Key
from mqcd.core.queueing.idempotency import Used
from mqcd.disk.durable import Disk
from mqcd.queue.format import keys
from mqcd.queue.keys.file import WriteKeys, write_keys
from mqcd.queue.keys.index import Keys, MovedKeys
from mqcd.queue.keys.live import Taken
from tests.fakes.disk import FaultyDisk


def name(number: int) -> bytes:
    return number.to_bytes(4, "big") * 4


def evacuate(index: Keys, root: Path, segment: int, numbers: range, at: int) -> list[str]:
    """Move keys into a file, as an evacuation does; names of the files that it has merged."""
    records = b"".join(keys.pack(name(number), bytes(8), number, at, segment) for number in numbers)
    merged = [file.name for file in index.to_merge(len(numbers))]
    task = WriteKeys(queue_root=root, segment=segment, records=records, merged=merged, since=index.since())
    written = write_keys(Disk(), task)
    assert written.file is not None
    new = index.open_file(written.file, written.merged, records)
    index.evacuated(MovedKeys(Taken(), new, written.merged))
    return written.merged


def test_a_merged_name_is_known_until_it_is_too_old(tmp_path: Path) -> None:
    since = 0
    with ThreadPoolExecutor(1) as executor:
        index = Keys(Disk(), executor, tmp_path, 1 << 20, lambda: since)
        assert not evacuate(index, tmp_path, 0, range(10), 100)
        for segment in (1, 2, 3):
            since = 50 * (segment - 1)
            numbers = range(1000 * segment, 1000 * segment + 10 * 2**segment)
            assert evacuate(index, tmp_path, segment, numbers, 100 + segment)
            assert all(index.new(Key(name(number))) is None for number in (0, 9, numbers[-1]))
        since = 104
        for segment in (4, 5):
            evacuate(index, tmp_path, segment, range(1000 * segment, 1000 * segment + 300), 100 + segment)
        assert index.new(Key(name(0)))
        assert index.new(Key(name(4000))) is None
        index.close()


async def test_a_key_is_found_though_its_file_is_merged_meanwhile(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        disk = FaultyDisk()
        # Without prints each file is read.
        index = Keys(disk, executor, tmp_path, 0, lambda: 0)
        assert not evacuate(index, tmp_path, 0, range(100), 100)
        assert not evacuate(index, tmp_path, 1, range(1000, 1010), 101)
        gate = disk.block("pread", "*/K1.keys")
        found = asyncio.ensure_future(index.turn(Key(name(0))))
        assert await asyncio.to_thread(gate.reached.wait, 30)
        disk.mend()
        assert len(evacuate(index, tmp_path, 2, range(2000, 2200), 102)) == 2
        gate.release()
        used = await found
        assert isinstance(used, Used)
        assert used.at == 100
        assert disk.count("close", "*/K?.keys") == 2
        index.close()
