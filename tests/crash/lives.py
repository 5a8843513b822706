"""Lives of a worker process: started, watched through its pipe, ended in one of several ways."""

from __future__ import annotations

import os
import random
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from mqcd.disk.durable import Disk
from mqcd.queue.manifest import log as manifest
from tests.crash.ledger import World

_PROJECT = Path(__file__).parents[2]
_PATIENCE = 60.0
"""Seconds after which a worker that was to end by itself is given up."""


class End(Enum):
    """How a life ends."""

    KILL = "kill"
    """SIGKILL of the server."""
    HELPER = "helper"
    """SIGKILL of its helper alone; the server goes on for a while and is then killed."""
    BOTH = "both"
    """SIGKILL of the helper and at once of the server."""
    HELPER_STOP = "helper-stop"
    """SIGKILL of the helper, and at once an orderly stop."""
    STOP = "stop"
    """SIGTERM: an orderly stop."""


class Life:
    """One worker process."""

    def __init__(
        self, root: Path, world: World, *, seed: int, mode: str, size: int, segments: int, links: bool
    ) -> None:
        self._world = world
        arguments = [str(root), str(seed), mode, str(size), str(segments), "links" if links else "counts"]
        self._errors = root / f"stderr-{seed}"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "tests.crash.worker", *arguments],
                cwd=_PROJECT,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self.process.stdout is not None
        self._pipe = self.process.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._rest = b""
        self.words: set[str] = set()
        self.ended = False

    def listen(self, enough: Callable[[], bool], seconds: float) -> None:
        """Hear the worker until `enough`, its end, or so many seconds have passed."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while not (self.ended or enough()):
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return
                self._hear()

    def _hear(self) -> None:
        data = os.read(self._pipe, 1 << 16)
        if not data:
            self.ended = True
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.words.add(self._world.hear(line.decode()))

    def listen_for(self, lines: int, seconds: float) -> None:
        """Hear so many lines more, or so many seconds."""
        enough = self._world.lines + lines
        self.listen(lambda: self._world.lines >= enough, seconds)

    def kill_helper(self) -> None:
        """SIGKILL for the worker's only child."""
        pid = self.process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)

    def finish(self) -> int:
        """Hear all that is left to hear; the exit status."""
        self.listen(lambda: False, _PATIENCE)
        if not self.ended:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            raise AssertionError(f"the worker does not end:\n{self.errors}")
        status = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    @property
    def errors(self) -> str:
        """What it wrote on its standard error."""
        return self._errors.read_text()[-6000:]


def first_live(root: Path) -> int:
    """Segments below it have been evacuated."""
    state = manifest.read(Disk(), root / "queue" / "MANIFEST")
    return state.first_live if state is not None else 0


def live(
    root: Path,
    world: World,
    seed: int,
    end: End,
    *,
    size: int,
    segments: int,
    links: bool = False,
    evacuating: bool = False,
) -> None:
    """One life under load that ends as told, at a moment that the seed chooses.

    With `evacuating` not before segments have been evacuated, so that the next one is on its way.
    """
    chance = random.Random(seed)
    life = Life(root, world, seed=seed, mode="load", size=size, segments=segments, links=links)
    if end is End.KILL and not evacuating and chance.random() < 0.15:
        life.listen_for(1, chance.uniform(0.1, 0.5))
    else:
        life.listen(lambda: "O" in life.words, _PATIENCE)
        assert "O" in life.words or end is End.KILL, life.errors
        before, given_up = first_live(root), time.monotonic() + _PATIENCE
        while evacuating and first_live(root) <= before and time.monotonic() < given_up:
            life.listen_for(200, 0.2)
        life.listen_for(chance.randint(1, 2500), chance.uniform(0.05, 0.9))
    if end in (End.HELPER, End.BOTH, End.HELPER_STOP):
        life.kill_helper()
    if end is End.HELPER:
        life.listen_for(2000, chance.uniform(0.1, 0.5))
    assert not life.ended, f"the worker died by itself, seed {seed}:\n{life.errors}"
    orderly = end in (End.STOP, End.HELPER_STOP)
    life.process.send_signal(signal.SIGTERM if orderly else signal.SIGKILL)
    status = life.finish()
    assert status == (0 if orderly else -signal.SIGKILL), f"exit {status}, seed {seed}:\n{life.errors}"


def drain(root: Path, world: World, *, size: int, segments: int) -> None:
    """A last life, without new mail, until the queue is empty; it ends in order."""
    life = Life(root, world, seed=0, mode="drain", size=size, segments=segments, links=False)
    assert life.finish() == 0, life.errors
    assert "Z" in life.words
