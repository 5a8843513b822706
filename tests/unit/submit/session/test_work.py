"""The one task of a session."""

import asyncio

from mqcd.submit.session.work import Work
from tests.fakes.clock import FakeClock, turns


async def _wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_task_that_is_cancelled_in_the_turn_of_its_start_says_its_end() -> None:
    work = Work(FakeClock())
    ends: list[BaseException | None] = []
    work.start(_wait_for_ever(), ends.append)
    work.cancel()
    await turns()
    assert [type(each) for each in ends] == [asyncio.CancelledError]
    assert work.task is None


async def test_a_cancellation_comes_before_a_wake_up_of_the_same_turn() -> None:
    work = Work(FakeClock())
    ends: list[BaseException | None] = []
    woken = asyncio.Event()

    async def wait() -> None:
        await woken.wait()

    work.start(wait(), ends.append)
    await turns()
    woken.set()
    work.cancel()
    await turns()
    assert [type(each) for each in ends] == [asyncio.CancelledError]
