"""Record lines on their way from a segment to clusters."""

from __future__ import annotations

import zlib
from array import array
from pathlib import Path

import pytest

from mqcd.core.model import Area
from mqcd.disk.durable import Disk
from mqcd.queue.format import record
from mqcd.queue.helper import jobs
from mqcd.queue.spool.silos import Silos
from tests.unit.queue.support import recipient

DUE = 60_000


def evacuate(root: Path, lines: list[bytes], due: int = DUE) -> jobs.Evacuated:
    segment = root / "segment"
    segment.write_bytes(b"".join(lines))
    places = array("Q")
    at = 0
    for line in lines:
        places.extend((at, len(line), due))
        at += len(line)
    task = jobs.Evacuate(
        path=segment,
        number=7,
        queue_root=root / "queue",
        silos=Silos(root / "spool", 1),
        contents=array("Q"),
        links={},
        lines=places,
        max_cluster=1 << 20,
        granularity=1000,
    )
    for directory in (root / "queue", root / "spool"):
        directory.mkdir()
    return jobs.evacuate(Disk(), task)


def changed(line: bytes, field: int, value: bytes) -> bytes:
    """Another value in a field, and the checksum of that."""
    fields = line.split(b"|")
    fields[field] = value
    body = b"|".join(fields)[:-9]
    return body + b"%08x\n" % zlib.crc32(body)


GOOD = record.encode(recipient(qid=1, area=Area.DEFERRED, due=DUE))


@pytest.mark.parametrize(
    "bad",
    [
        changed(GOOD, 1, b"%d" % (1 << 32)),
        changed(GOOD, 3, b"-1"),
        GOOD[:-2] + b"x\n",
    ],
    ids=["qid", "due", "checksum"],
)
def test_a_line_that_no_journal_can_hold_goes_to_quarantine(tmp_path: Path, bad: bytes) -> None:
    """In a cluster it would be quarantined only when it is claimed, and fsck would find fault meanwhile."""
    done = evacuate(tmp_path, [bad, GOOD])
    assert (done.bad, [cluster.left for cluster in done.clusters]) == (1, [1])
    (aside,) = (tmp_path / "queue" / "quarantine").iterdir()
    assert aside.read_bytes() == bad


def test_a_bounce_that_was_put_off_as_it_cannot_be_decoded_goes_to_quarantine(tmp_path: Path) -> None:
    """Else it would come back from its cluster, and be put off, for ever."""
    bounce = changed(record.encode(recipient(qid=1, area=Area.BOUNCES, due=0)), 5, b"many")
    done = evacuate(tmp_path, [bounce])
    assert (done.bad, done.clusters) == (1, [])
