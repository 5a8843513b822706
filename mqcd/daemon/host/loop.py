"""The event loop of a process: uvloop where that is to be had; and the signals that end it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


def run_loop(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run an event loop; gives the exit code."""
    runner = asyncio.Runner(loop_factory=loop_factory())
    try:
        return runner.run(main())
    finally:
        # It starts a thread to end the loop's pool with, and has closed all else when none can be had.
        with suppress(RuntimeError):
            runner.close()


def asked_to_end() -> asyncio.Event:
    """Set by SIGTERM and SIGINT from now on."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    return ended


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop of uvloop where that is to be had (it is installed on Linux), else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
