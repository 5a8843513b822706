"""Fixtures of unit tests."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def process_as_before() -> Iterator[None]:
    """What a server changes in its process, put back."""
    root, umask = logging.getLogger(), os.umask(0o022)
    handlers, level, hook = list(root.handlers), root.level, threading.excepthook
    interval, young = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*young)
    os.umask(umask)
    root.handlers[:] = handlers
    root.setLevel(level)
    threading.excepthook = hook
