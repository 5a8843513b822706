"""Event files, a receiver of a test's own, and feeds over both."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source, events_path
from mqcd.feeds.feed import LOOK_MS, Feed, Terms
from mqcd.feeds.position import Positions
from mqcd.feeds.reader import Reader, chooser
from mqcd.feeds.sink import NotTaken
from tests.fakes.clock import FakeClock


def event(number: int, verb: str = "delivered", **more: str | int) -> dict[str, str | int]:
    """An event whose id is its number."""
    return {"v": 1, "id": f"n/0/{number}", "event": verb, "spid": f"{number:016X}", "qid": 1, **more}


def write(directory: Path, number: int, events: Sequence[dict[str, str | int]], shard: int = 0) -> Path:
    """A finished event file."""
    directory.mkdir(exist_ok=True)
    path = events_path(directory, Source("n", shard), number)
    text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in events)
    path.write_bytes(gzip.compress(text.encode()))
    return path


@dataclass
class Taken:
    """A receiver: what it took, and what it answers."""

    refusing: str = ""
    first: int = 0
    """Portions that it takes before it refuses any."""
    broken: bool = False
    """Whether it has a fault of its own."""
    wait_ms: int = 0
    portions: list[list[str]] = field(default_factory=list)
    refused: int = 0
    closed: bool = False

    async def send(self, lines: Sequence[bytes]) -> None:
        if self.broken:
            raise KeyError("made to fail")
        if self.refusing and len(self.portions) >= self.first:
            self.refused += 1
            raise NotTaken(self.refusing, self.wait_ms)
        self.portions.append([json.loads(line)["id"] for line in lines])

    async def close(self) -> None:
        self.closed = True

    @property
    def ids(self) -> list[str]:
        return [each for portion in self.portions for each in portion]


@dataclass
class Bench:
    """A directory of events, and a feed of it."""

    root: Path
    clock: FakeClock = field(default_factory=FakeClock)
    taken: Taken = field(default_factory=Taken)
    most: int = 100

    @property
    def events(self) -> Path:
        return self.root / "events"

    @property
    def positions(self) -> Positions:
        return Positions(Disk(), self.root / "feeds")

    def feed(
        self,
        *,
        from_start: bool = True,
        verbs: Sequence[str] = (),
        disk: Disk | None = None,
        reading: Disk | None = None,
    ) -> Feed:
        """A new one over what there is, as after a start."""
        from mqcd.core.events import Verb

        wants = chooser([Verb(verb) for verb in verbs], ())
        terms = Terms(name="crm", most=self.most, chooses=wants, from_start=from_start)
        reader = Reader(reading or Disk(), self.events)
        positions = Positions(disk or Disk(), self.root / "feeds")
        return Feed(terms, self.taken, reader, positions, self.clock, chance=lambda: 0.0)

    async def until(self, condition: Callable[[], bool], step_ms: int = LOOK_MS) -> None:
        """Let time go on until it holds; files are read by threads."""
        import asyncio

        async with asyncio.timeout(30):
            while not condition():
                await self.clock.run_for(step_ms)
                await asyncio.sleep(0.001)
