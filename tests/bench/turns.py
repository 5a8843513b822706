"""mqcd as `python -m mqcd`, and how long the turns of its loop are: processor time between beats of a
millisecond.

Where a machine is busy with other things, times by the clock tell of those; what the loop's own thread has
worked between two beats does not. Each second a line goes to the file that MQCD_TURNS names: the monotonic
time, and in JSON how many beats had worked at most 1, 2, 4, 8 ... ms. The beat itself takes some two percent
of a processor.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from pathlib import Path

from mqcd.cli.main import main
from mqcd.daemon import process

FILE = "MQCD_TURNS"


async def beat(path: Path) -> None:
    """Count beats until cancelled."""
    counts: Counter[int] = Counter()
    worked = time.thread_time()
    written = time.monotonic()
    with path.open("a", buffering=1) as out:
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            took, worked = (now - worked) * 1000, now
            bound = 1
            while bound < took:
                bound *= 2
            counts[bound] += 1
            if time.monotonic() - written >= 1:
                written = time.monotonic()
                out.write(f"{written} {json.dumps(counts)}\n")
                counts.clear()


def between(path: Path, start: float, end: float) -> Counter[int]:
    """The beats of some seconds, by the bound in ms that their work was below."""
    counts: Counter[int] = Counter()
    for line in path.read_text().splitlines():
        at, _, text = line.partition(" ")
        if start < float(at) <= end:
            counts.update({int(bound): count for bound, count in json.loads(text).items()})
    return counts


class Watched(process.Process):
    """The server's process with a beat."""

    async def main(self) -> int:
        """Beat while it runs."""
        beating = asyncio.ensure_future(beat(Path(os.environ[FILE])))
        try:
            return await super().main()
        finally:
            beating.cancel()


if __name__ == "__main__":
    process.Process = Watched  # type: ignore[misc]
    raise SystemExit(main())
