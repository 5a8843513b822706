"""Background tasks: which ends are told of."""

from __future__ import annotations

import asyncio

import pytest

from mqcd.daemon.host.guard import Guard


async def fail() -> None:
    raise RuntimeError("a mistake")


async def end() -> None:
    pass


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_failure_is_logged_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    guard.spawn("the part", fail())
    await guard.failed.wait()
    assert "the part has failed" in caplog.text
    assert "a mistake" in caplog.text


async def test_an_end_that_nobody_asked_for_is_a_failure() -> None:
    guard = Guard()
    guard.spawn("the part", end())
    await guard.failed.wait()


async def test_while_stopping_a_task_may_end() -> None:
    guard = Guard()
    guard.spawn("the part", end())
    guard.stopping()
    await guard.ended("the part")
    assert not guard.failed.is_set()


async def test_a_task_without_an_end_is_cancelled() -> None:
    guard = Guard()
    guard.spawn("the part", wait_for_ever())
    await guard.end("the part")
    await guard.end("a part that was never begun")
    assert not guard.failed.is_set()


async def test_a_failure_of_a_task_that_somebody_else_began_is_reported() -> None:
    guard = Guard()
    theirs = asyncio.ensure_future(fail())
    guard.adopt()
    await guard.failed.wait()
    assert theirs.done()
