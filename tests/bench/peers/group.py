"""A control group (cgroup 2) for all processes of one server: their processor time, memory and end.

Process times alone would miss much: some servers fork a process for each message and ignore its end.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

_ENTER = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
_SAMPLE_S = 0.25
_STOP_S = 30.0
_SYNCS = "fsync,fdatasync,sync_file_range,sync,syncfs,msync"


def root() -> Path | None:
    """Where groups may be made; None where nowhere."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2" and os.access(place, os.W_OK):
            return Path(place)
    return None


class Group:
    """Processes of one server, in a group that goes with it."""

    def __init__(self) -> None:
        base = root()
        assert base is not None
        self._directory = Path(tempfile.mkdtemp(prefix="mqcd-peer-", dir=base))

    def start(
        self, command: Sequence[str], env: Mapping[str, str], directory: Path, user: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the server in the group; its output goes to a file `output`."""
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        enter = ["sh", "-c", _ENTER, str(self._directory), *drop, *command]
        with (directory / "output").open("wb") as out:
            return subprocess.Popen(
                enter,
                env=dict(env),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def pids(self) -> list[int]:
        """All processes that run."""
        return [int(line) for line in (self._directory / "cgroup.procs").read_text().split()]

    def seconds(self) -> float:
        """Processor time so far, of ended processes too."""
        found = re.search(r"usage_usec (\d+)", (self._directory / "cpu.stat").read_text())
        assert found is not None
        return int(found[1]) / 1e6

    def memory(self) -> int:
        """Proportional memory (PSS), octets: shared pages count once."""
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                found = re.search(r"\nPss: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text())
                total += int(found[1]) << 10 if found else 0
        return total

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Stop the server in good order; what is left after a time is killed."""
        process.terminate()
        end = time.monotonic() + _STOP_S
        asked = False
        while self.pids() and time.monotonic() < end:
            if process.poll() is not None and not asked:
                # The first process may have been a script that leaves the server behind.
                asked = True
                self._signal(signal.SIGTERM)
            time.sleep(0.02)
        (self._directory / "cgroup.kill").write_text("1")
        process.wait()
        while self.pids():
            time.sleep(0.02)
        while self._directory.exists():
            # Its last processes may wait to be reaped.
            with contextlib.suppress(OSError):
                self._directory.rmdir()
            time.sleep(0.02)

    def _signal(self, number: int) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    @contextlib.contextmanager
    def peak(self) -> Iterator[list[int]]:
        """Samples of `memory` while the block runs."""
        samples = [self.memory()]
        over = threading.Event()

        def sample() -> None:
            while not over.wait(_SAMPLE_S):
                samples.append(self.memory())

        with Joined(threading.Thread(target=sample), over):
            yield samples
        samples.append(self.memory())

    @contextlib.contextmanager
    def syncs(self, report: Path) -> Iterator[list[int]]:
        """Count the syncs of all processes while the block runs; the list holds the number afterwards."""
        attach = [part for pid in self.pids() for part in ("-p", str(pid))]
        command = ["strace", "-f", "-c", "-o", str(report), "-e", f"trace={_SYNCS}", *attach]
        with (report.parent / "strace.log").open("wb") as out:
            tracer = subprocess.Popen(command, stdout=out, stderr=out)
        while b"attached" not in (report.parent / "strace.log").read_bytes() and tracer.poll() is None:
            time.sleep(0.05)
        count: list[int] = []
        try:
            yield count
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
        count.append(calls(report.read_text()))


class Joined:
    """A thread that ends with its block."""

    def __init__(self, thread: threading.Thread, over: threading.Event) -> None:
        self._thread, self._over = thread, over

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()


def calls(summary: str) -> int:
    """Calls in a summary of `strace -c`."""
    rows = (line.split() for line in summary.splitlines())
    return sum(int(row[3]) for row in rows if row and row[-1] in _SYNCS.split(","))
