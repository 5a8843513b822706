"""What the commands' tests share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import partial

import pytest


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[], None]]:
    """Presses Ctrl-C. SIGINT is as a command finds it at its start: Spark, where it ran in this process,
    leaves a handler of its own, and a shell's background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield partial(signal.raise_signal, signal.SIGINT)
    signal.signal(signal.SIGINT, before)
