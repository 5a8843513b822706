"""The helper process seen from the loop: done at once after a death, whether it was at work or not."""

from __future__ import annotations

import asyncio
import os
import signal
from array import array
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.daemon.host.loop import loop_factory
from mqcd.disk.durable import Disk
from mqcd.queue.helper import jobs
from mqcd.queue.helper.helper import PATIENCE_SECONDS, SHORT_SECONDS, Helper
from mqcd.queue.spool.silos import Silos

SIZE = 4096


@pytest.fixture
async def helper(tmp_path: Path) -> AsyncIterator[Helper]:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    made = Helper(lock)
    yield made
    await made.stop()
    os.close(lock)


async def another(helper: Helper, than: int | None) -> int:
    """The next process."""
    async with asyncio.timeout(60):
        while (pid := helper.pid) is None or pid == than:
            await asyncio.sleep(0)
    return pid


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def test_a_helper_that_dies_at_rest_is_restarted(
    helper: Helper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await helper.run(jobs.Prepare(tmp_path / "00", SIZE))
    first = helper.pid
    kill(first)
    second = await another(helper, first)
    assert "ended with status -9" in caplog.text
    await helper.run(jobs.Prepare(tmp_path / "01", SIZE))
    assert helper.pid == second
    assert (tmp_path / "01").stat().st_size == SIZE


async def test_terminal_signals_do_not_reach_a_starting_helper(helper: Helper) -> None:
    """They go to processes of the terminal's own session."""
    process = await helper._start()
    assert process.pid is not None
    assert os.getsid(process.pid) == process.pid != os.getsid(0)


def test_the_loop_of_the_server_can_start_it(tmp_path: Path) -> None:
    """Loops differ in what they know of processes."""

    async def prepare(lock: int) -> None:
        helper = Helper(lock)
        try:
            await helper.run(jobs.Prepare(tmp_path / "00", SIZE))
        finally:
            await helper.stop()

    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(prepare(lock))
    os.close(lock)
    assert (tmp_path / "00").stat().st_size == SIZE


async def test_a_helper_that_cannot_start_is_not_restarted_idly(helper: Helper) -> None:
    await helper._start()
    kill(helper.pid)
    assert helper._watcher is not None
    await asyncio.wait_for(helper._watcher, 60)
    assert helper.pid is None


async def test_a_task_whose_helper_is_killed_is_done_by_the_next(helper: Helper, tmp_path: Path) -> None:
    await helper.run(jobs.Prepare(tmp_path / "00", SIZE))
    first = helper.pid
    assert first is not None
    # It has the task, and does not come to it.
    os.kill(first, signal.SIGSTOP)
    running = asyncio.ensure_future(helper.run(jobs.Prepare(tmp_path / "01", SIZE)))
    await asyncio.sleep(0)
    kill(first)
    await asyncio.wait_for(running, 60)
    assert helper.pid not in (None, first)
    assert (tmp_path / "01").stat().st_size == SIZE


@pytest.mark.parametrize("deaths", [0, 1])
async def test_the_answer_to_a_cancelled_task_is_nobodys(
    helper: Helper, tmp_path: Path, caplog: pytest.LogCaptureFixture, deaths: int
) -> None:
    running = asyncio.ensure_future(helper.run(jobs.Prepare(tmp_path / "00", SIZE)))
    at_work = await another(helper, None)
    for _ in range(deaths):
        kill(at_work)
        at_work = await another(helper, at_work)
    # It has the task, and does not come to it.
    os.kill(at_work, signal.SIGSTOP)
    caplog.clear()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert helper.pid is None
    assert caplog.text == "", "it has done nothing wrong"
    missing = jobs.Prepare(tmp_path / "nowhere" / "01", SIZE)
    with pytest.raises(FileNotFoundError):
        await helper.run(missing)


async def test_a_task_that_kills_twice_is_given_up(helper: Helper, tmp_path: Path) -> None:
    running = asyncio.ensure_future(helper.run(jobs.Prepare(tmp_path / "00", SIZE)))
    # Each is killed before it can have begun.
    first = await another(helper, None)
    kill(first)
    kill(await another(helper, first))
    with pytest.raises(StoreUnavailable, match="died twice"):
        await asyncio.wait_for(running, 60)
    assert not (tmp_path / "00").exists()


class Patience:
    """`asyncio.sleep` that passes at once while a stopped helper is waited for, and never for others."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self._stopped: set[int | None] = set()
        self.passes: tuple[float, ...] = (SHORT_SECONDS, PATIENCE_SECONDS - SHORT_SECONDS)
        self.begun = 0

    def stop(self, pid: int | None) -> None:
        assert pid is not None
        self._stopped.add(pid)
        os.kill(pid, signal.SIGSTOP)

    async def sleep(self, seconds: float) -> None:
        self.begun += 1
        await asyncio.sleep(0)
        while self._helper.pid not in self._stopped or seconds not in self.passes:
            await asyncio.sleep(0)


@pytest.fixture
async def patience(helper: Helper, tmp_path: Path) -> Patience:
    """Of a helper that has done a task."""
    await helper.run(jobs.Prepare(tmp_path / "00", SIZE))
    made = Patience(helper)
    helper._sleep = made.sleep
    return made


async def test_one_that_hangs_is_killed_and_replaced(
    helper: Helper, patience: Patience, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = helper.pid
    patience.stop(first)
    await asyncio.wait_for(helper.run(jobs.Prepare(tmp_path / "01", SIZE)), 60)
    assert (tmp_path / "01").stat().st_size == SIZE
    assert helper.pid not in (None, first)
    assert (helper.hung, helper.trouble) == (1, "")
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"helper process {first} " in caplog.text


async def test_a_task_in_which_two_hang_is_given_up(
    helper: Helper, patience: Patience, tmp_path: Path
) -> None:
    first = helper.pid
    patience.stop(first)
    running = asyncio.ensure_future(helper.run(jobs.Prepare(tmp_path / "01", SIZE)))
    patience.stop(await another(helper, first))
    with pytest.raises(StoreUnavailable, match="hung twice"):
        await asyncio.wait_for(running, 60)
    assert helper.hung == 2


async def test_a_stopping_shard_gives_up_a_hanging_helper_sooner(
    helper: Helper, patience: Patience, tmp_path: Path
) -> None:
    patience.passes = (SHORT_SECONDS,)
    patience.stop(helper.pid)
    running = asyncio.ensure_future(helper.run(jobs.Prepare(tmp_path / "01", SIZE)))
    async with asyncio.timeout(60):
        while not helper.trouble:
            await asyncio.sleep(0)
    assert f"helper process {helper.pid} " in helper.trouble
    helper.hurry()
    await asyncio.wait_for(running, 60)
    assert helper.hung == 1


async def test_a_stop_does_not_wait_for_one_that_hangs(helper: Helper, patience: Patience) -> None:
    patience.passes = (SHORT_SECONDS,)
    patience.stop(helper.pid)
    await asyncio.wait_for(helper.stop(), 60)
    assert (helper.pid, helper.hung) == (None, 1)


async def test_each_sign_of_a_task_that_goes_on_begins_the_wait_anew(
    helper: Helper, patience: Patience, tmp_path: Path
) -> None:
    spids = [spid * 2 for spid in range(1, 4001)]
    (tmp_path / "journal").write_bytes(b"x")
    silos = Silos(tmp_path, 16)
    silos.make(Disk())
    for spid in spids:
        silos.path(spid).write_bytes(b"x")
    contents = array("Q", [number for spid in spids for number in (spid, 0, 1)] * 3)
    place, none = tmp_path / "journal", array("Q")
    task = jobs.Evacuate(place, 1, tmp_path, silos, contents, {}, none, 1 << 20, 60_000)
    running = asyncio.ensure_future(helper.run(task))
    while not running.done() and patience.begun <= 2:
        assert helper.pid is not None
        # What its timer does; a quick machine ends the task before the timer does it once.
        os.kill(helper.pid, signal.SIGALRM)
        await asyncio.sleep(0)
    await running
    # One for the task, one for its answer.
    assert patience.begun > 2
    assert helper.hung == 0
