"""The small parts that keep count: references, accounts, waiting, the cluster index's order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcd.core.model import Area
from mqcd.disk.durable import Disk
from mqcd.queue.clusters.index import ClusterIndex
from mqcd.queue.format.frame import IN_SPOOL
from mqcd.queue.format.segment_header import SegmentHeader
from mqcd.queue.manifest.state import ClusterState
from mqcd.queue.memory.entries import Accounts
from mqcd.queue.memory.ready import Waiting
from mqcd.queue.spool.refcounts import References
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.segments import JournalEntry, Segment

SEVERAL, SINGLE = 0x101, 0x100
SEGMENT = Segment(SegmentHeader(1, 1, 1, 0, 0, 0, 0), Path("/nowhere"))


def entry(area: Area = Area.INCOMING, due: int = 0, received: int = 5, qid: int = 1) -> JournalEntry:
    made = JournalEntry(
        spid=SINGLE,
        qid=qid,
        area=area,
        due=due,
        size=10,
        received=received,
        content=IN_SPOOL,
        linked=False,
        domain="example.org",
    )
    made.segment = SEGMENT
    return made


# ---------------------------------------------------------------- references


def test_beyond_its_limit_a_count_is_left_to_the_scan() -> None:
    references = References(1)
    references.accepted(SEVERAL, 2)
    references.accepted(SEVERAL + 2, 2)
    assert len(references) == 1
    assert not references.finished(SEVERAL + 2, True)
    assert references.batch == {SEVERAL + 2}
    assert references.misses == 1


def test_nothing_joins_the_batch_that_has_no_file() -> None:
    references = References(0)
    assert not references.finished(SEVERAL, False)
    assert references.batch == set()


# ---------------------------------------------------------------- waiting


def test_an_entry_that_is_not_meant_any_more_is_passed_over() -> None:
    waiting = Waiting()
    gone, moved, kept = (entry(Area.DEFERRED, 10, qid=n) for n in range(3))
    for each in (gone, moved, kept):
        waiting.add(each)
    gone.state = State.ENDED
    moved.due = 50
    waiting.add(moved)
    assert waiting.pop_due(20) is kept
    assert waiting.pop_due(20) is None
    assert waiting.pop_due(50) is moved


def test_a_renewed_suspension_keeps_one_copy_of_its_rows() -> None:
    waiting = Waiting()
    mail = [entry(qid=n) for n in range(3)]
    for each in mail:
        waiting.add(each)
        waiting.pop_new()
        waiting.pass_over(each, 10, 0)
    for until in (20, 30, 40):
        assert waiting.pop_due(until - 10, {"example.org": until}) is None
    assert [waiting.pop_aged(None) for _ in range(4)] == [*mail, None]
    assert waiting.pop_due(40, {"example.org": 50}) is None
    assert waiting.pop_aged(None) is mail[0]


# ---------------------------------------------------------------- accounts


def cluster(name: str, **changes: Any) -> ClusterState:
    values: dict[str, Any] = {"size": 100, "cursor": 15, "left": 3, "octets": 30, "received": 5, **changes}
    return ClusterState(name=name, **values)


def test_the_oldest_stays_right_through_many_comings_and_goings() -> None:
    accounts = Accounts()
    mail = [entry(received=n) for n in range(5000)]
    for each in mail:
        accounts.add_entry(each)
    for each in mail[:4990]:
        each.state = State.ENDED
        accounts.remove_entry(Area.INCOMING, each)
    for n in range(3000):
        each = entry(received=10_000 + n)
        accounts.add_entry(each)
    found = accounts.stats([])[Area.INCOMING]
    assert (found.recipients, found.oldest) == (3010, 4990)


# ---------------------------------------------------------------- the cluster index


@pytest.fixture
def cluster_index(tmp_path: Path) -> ClusterIndex:
    return ClusterIndex(Disk(), tmp_path)


def test_deferred_clusters_come_by_due_time(cluster_index: ClusterIndex) -> None:
    cluster_index.add(cluster("deferred/T60/M1-0.mqc", due=90, due_last=100))
    cluster_index.add(cluster("deferred/T0/M2-0.mqc", due=30, due_last=80))
    assert cluster_index.offers.next_due() == 30
    assert cluster_index.offers.first_due(29) is None
    assert cluster_index.offers.first_due(30) == "deferred/T0/M2-0.mqc"
    cluster_index.advance(cluster("deferred/T0/M2-0.mqc", due=95, due_last=95, left=1))
    assert cluster_index.offers.first_due(95) == "deferred/T60/M1-0.mqc"
    assert cluster_index.unrecorded == {"deferred/T0/M2-0.mqc"}


def test_other_clusters_come_in_the_order_of_their_making(cluster_index: ClusterIndex) -> None:
    for name in ("incoming/M1-0.mqc", "incoming/M2-0.mqc", "bounces/M1-0.mqc"):
        cluster_index.add(cluster(name))
    assert cluster_index.offers.first(Area.INCOMING) == "incoming/M1-0.mqc"
    cluster_index.advance(cluster("incoming/M1-0.mqc", left=0))
    assert cluster_index.offers.first(Area.INCOMING) == "incoming/M2-0.mqc"
    assert cluster_index.offers.first(Area.BOUNCES) == "bounces/M1-0.mqc"


def test_what_was_taken_after_an_edit_is_reported_with_the_next(cluster_index: ClusterIndex) -> None:
    name = "incoming/M1-0.mqc"
    first, second = cluster(name, left=2), cluster(name, left=1)
    cluster_index.advance(first)
    states = cluster_index.to_record()
    cluster_index.advance(second)
    cluster_index.recorded(states)
    assert cluster_index.unrecorded == {name}
    cluster_index.recorded({name: second})
    assert cluster_index.unrecorded == set()


def test_a_cluster_that_ended_is_forgotten(cluster_index: ClusterIndex) -> None:
    name = "incoming/M1-0.mqc"
    cluster_index.advance(cluster(name, left=0))
    cluster_index.recorded(cluster_index.to_record())
    assert cluster_index.clusters == {}
    assert cluster_index.unrecorded == set()
