"""A next hop that is a daemon of the test's own: started in its directory, read by its log, ended whole."""

from __future__ import annotations

import abc
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.kit.waiting import DEADLINE, poll


class NextHop(abc.ABC):
    """`name` is for people; `logs` are the files below `directory` that it writes, and `errors` its own."""

    def __init__(self, name: str, directory: Path, logs: Sequence[str] = ()) -> None:
        self._name = name
        self._directory = directory
        self._logs = (*logs, "errors")
        self._process: subprocess.Popen[bytes] | None = None

    @abc.abstractmethod
    def listens(self) -> bool:
        """Whether it takes connections by now."""

    def launch(self, command: Sequence[str], env: Mapping[str, str], **how: Any) -> None:
        """Start it, in a session of its own, and wait until it listens."""
        with (self._directory / "errors").open("wb") as errors:
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=self._directory,
                start_new_session=True,
                env=dict(env),
                **how,
            )
        try:
            poll(lambda: self.listens() or process.poll() is not None, f"{self._name}'s start")
            assert process.poll() is None
        except AssertionError:
            self.stop()
            raise AssertionError(f"{self._name} did not start: {self.log()}") from None

    def log(self) -> str:
        """All that it has written to its log."""
        logs = (self._directory / name for name in self._logs)
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    def logged(self, *texts: str) -> str:
        """The first line of the log that has all these texts, now or later."""

        def look() -> str | None:
            return next((line for line in self.log().splitlines() if all(t in line for t in texts)), None)

        return poll(look, f"{texts} in {self._name}'s log")

    def stop(self) -> None:
        """End the daemon that was started, and what it has started."""
        process = self._process
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(DEADLINE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE)
