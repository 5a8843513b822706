"""Ends the process when its stop takes too long: a thread, because the event loop itself may hang.

It is started with the server: when the stop comes, perhaps no thread can be started any more.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

log = logging.getLogger("mqcd.daemon")


class Cutter:
    """Armed once; then it ends the process after `seconds`, unless it is called off."""

    def __init__(self, seconds: float, end: Callable[[int], None] = os._exit) -> None:
        """Raises RuntimeError when no thread can be started."""
        self._seconds = seconds
        self._end = end
        self._code = 0
        self._armed = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqcd-cutter", daemon=True)
        self._thread.start()

    def arm(self, code: int) -> None:
        """Count from now; the first call alone counts. `code` is the exit code."""
        if not self._armed.is_set():
            self._code = code
            self._armed.set()

    def call_off(self) -> None:
        """The stop is done."""
        self._over.set()
        self._armed.set()
        self._thread.join()

    def _run(self) -> None:
        self._armed.wait()
        if not self._over.wait(self._seconds):
            log.error("the stop took too long and was cut off; the next start recovers the rest")
            self._end(self._code)
