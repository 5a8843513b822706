"""Reads of clusters: what is counted where lines are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.disk.durable import Disk
from mqcd.queue.clusters.file import FIRST_LINE, START
from mqcd.queue.clusters.reading import Reader
from mqcd.queue.format import record
from mqcd.queue.manifest.state import ClusterState
from tests.fakes.clock import START_MS
from tests.unit.queue.support import recipient

COUNT = 5


@pytest.mark.parametrize(
    ("lines", "lacks", "left", "bad"),
    [
        ("ssss", 0, 4, 0),
        ("xss", 0, 2, 2),
        ("xsss", 0, 3, 1),
        ("xxsss", 0, 3, 1),
        ("xssss", 0, 3, 1),
        ("x", 0, 0, 4),
        ("xs", 9, 3, 1),
        ("ss", 9, 4, 0),
        ("", 0, 0, 4),
        ("sssss", 0, 4, 0),
    ],
)
def test_what_is_counted_behind_the_first_of_five(
    tmp_path: Path, lines: str, lacks: int, left: int, bad: int
) -> None:
    sound = record.encode(recipient())
    name = "deferred/0/M1-0.mqc"
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_bytes(FIRST_LINE + sound + b"".join(sound if each == "s" else b"x\n" for each in lines))
    size = path.stat().st_size + lacks
    state = ClusterState(
        name=name, size=size, cursor=START, left=COUNT, octets=9, received=1, due=1, due_last=START_MS
    )
    taken = Reader(Disk(), tmp_path).read(state, START_MS, 1, START_MS, 1 << 20)
    assert (len(taken.lines), taken.state.left, taken.bad) == (1, left, bad)
