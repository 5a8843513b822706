"""All tables from a made-up event log: time, processor time, memory; then one new segment, and a stream.

    python -m tests.bench.pipeline [--events 1000000,5000000] [--set NAME=VALUE]

runs `mqcd pipeline run` as a person would, with default settings, Java's start included; how long Spark
takes to start and to end, with nothing to do, is told first. Some segments are held back. To another run
each come afterwards, by itself, an older one of the first node and the newest of the second. The first of
these two is the second run of these tables, and has Java keep its classes: that is in its time. Then a
stream is started, given the last but one of the third, and when it has taken that, the newest. Each of
these comes to a machine that was idle for a minute, as it does where segments are closed now and then:
rented processors often are slower behind some minutes of full load. Memory is the greatest sum of what Java
and all Python workers have entry at one time, so pages that workers share count for each of them.
Processor time is that of all of them, and does not depend on who else is busy as much as the time on the
wall does.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tests.bench.eventlogs.damage import hold_back
from tests.bench.eventlogs.generate import generate
from tests.bench.eventlogs.world import Plan
from tests.bench.kit import show, workplace

_SUBREAPER = 36
"""prctl's PR_SET_CHILD_SUBREAPER (linux/prctl.h)."""
_PAGE = resource.getpagesize()
_REST = 60
"""Seconds."""


def adopt() -> None:
    """Be the parent of processes whose parent is gone: else nobody could ask what Java has used."""
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def _parents() -> dict[int, int]:
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError):
                found[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def _entry(root: int) -> int:
    """Octets that all descendants of a process hold."""
    parents = _parents()
    octets = 0
    for pid in parents:
        above = pid
        while above not in (0, root):
            above = parents.get(above, 0)
        if above == root and pid != root:
            with suppress(OSError):
                octets += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return octets


class Peak(threading.Thread):
    """Looks four times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.octets = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.25):
            self.octets = max(self.octets, _entry(os.getpid()))

    def stop(self) -> int:
        """Gives the peak."""
        self._over.set()
        self.join()
        return self.octets


def _used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def _reap() -> None:
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _command(var: Path, *words: str) -> list[str]:
    conf = var / "mqcd.xml"
    conf.write_text("<mailserver/>\n")
    return [sys.executable, "-m", "mqcd", "-c", str(conf), "--var", str(var), "pipeline", *words]


def measured(command: Sequence[str]) -> tuple[str, dict[str, object]]:
    """What a command prints, and what it took."""
    peak, before, begun = Peak(), _used(), time.monotonic()
    peak.start()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    wall = time.monotonic() - begun
    _reap()
    return done.stdout, {
        "wall s": wall,
        "processor s": _used() - before,
        "peak MB": peak.stop() // 1_000_000,
        "load": os.getloadavg()[0],
    }


_NOTHING = """
from mqcd.pipeline.spark.session import running
with running(sources=False):
    pass
"""


def spark_alone() -> dict[str, object]:
    """Spark's start and end."""
    return measured([sys.executable, "-c", _NOTHING])[1]


def pipeline_run(var: Path, *flags: str) -> dict[str, object]:
    """One `mqcd pipeline run` over what is new below `var`."""
    printed, took = measured(_command(var, "run", "--json", *flags))
    return {"events": json.loads(printed)["events"], **took}


def pipeline_stream(var: Path, files: Sequence[Path], *flags: str) -> Iterator[dict[str, object]]:
    """A stream that is given one file after the other."""
    words = _command(var, "stream", "--json", *flags)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdout is not None
        try:
            for path in files:
                time.sleep(_REST)
                begun = time.monotonic()
                shutil.move(path, var / "events")
                line = stream.stdout.readline()
                took = time.monotonic() - begun
                yield {"events": json.loads(line)["events"], "wall s": took, "load": os.getloadavg()[0]}
        finally:
            stream.terminate()
    _reap()


def _last_full(events: Path) -> Path:
    """The last segment of the first node that is about as large as the largest."""
    files = sorted(events.glob("mail1-0-0*"))
    largest = max(path.stat().st_size for path in files)
    return [path for path in files if path.stat().st_size > largest * 0.8][-1]


def _newest(events: Path, node: str, many: int = 1) -> list[Path]:
    return sorted(events.glob(f"{node}-0-0*"))[-many:]


def measure(root: Path, events: int, flags: list[str]) -> None:
    """One size."""
    var, aside = root / str(events), root / "aside"
    aside.mkdir()
    generate(Plan(seed=7, events=events), var)
    held = [
        _last_full(var / "events"),
        *_newest(var / "events", "mail2"),
        *_newest(var / "events", "mail3", 2),
    ]
    older, newest, *others = (hold_back(path, aside) for path in held)
    show("all tables", pipeline_run(var, *flags))
    for what, path in (("an older segment", older), ("the newest segment", newest)):
        time.sleep(_REST)
        shutil.move(path, var / "events")
        show(what, pipeline_run(var, *flags))
    streamed = pipeline_stream(var, others, *flags)
    for what, took in zip(("a stream's first segment", "then the newest of the node"), streamed, strict=True):
        show(what, took)
    shutil.rmtree(var)
    aside.rmdir()


def main() -> None:
    """Each size in turn."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pipeline", description=__doc__)
    parser.add_argument("--events", default="1000000,5000000")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark's"
    )
    given = parser.parse_args()
    adopt()
    flags = [word for pair in given.set for word in ("--set", pair)]
    with workplace() as root:
        show("Spark's start and end", spark_alone())
        for events in given.events.split(","):
            measure(root, int(events), flags)


if __name__ == "__main__":
    main()
