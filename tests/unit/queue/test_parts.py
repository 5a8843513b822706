"""The small parts that keep count: references, accounts, waiting, the cluster index's order."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.core.model import Area
from mqcd.disk.durable import Disk
from mqcd.queue.clusters.index import ClusterIndex
from mqcd.queue.format.frame import IN_SPOOL
from mqcd.queue.format.segment_header import SegmentHeader
from mqcd.queue.manifest.log import ClusterState
from mqcd.queue.memory.counters import Accounts
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


def test_a_single_recipient_needs_no_count() -> None:
    references = References(0)
    references.accepted(SINGLE, 1)
    assert len(references) == 0
    assert references.finished(SINGLE, True)
    assert not references.finished(SINGLE, False)


def test_the_last_of_several_lets_the_file_go() -> None:
    references = References(0)
    references.accepted(SEVERAL, 3)
    assert [references.finished(SEVERAL, True) for _ in range(3)] == [False, False, True]
    assert (len(references), references.batch, references.misses) == (0, set(), 0)


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


def test_new_mail_is_first_come_first_served() -> None:
    waiting = Waiting()
    mail = [entry(qid=n) for n in range(3)]
    for each in mail:
        waiting.add(each)
    assert waiting.next_due() == 0
    assert [waiting.pop_new() for _ in range(4)] == [*mail, None]


def test_due_mail_comes_by_due_time_and_not_before() -> None:
    waiting = Waiting()
    late, soon = entry(Area.DEFERRED, 90), entry(Area.DEFERRED, 30)
    waiting.add(late)
    waiting.add(soon)
    assert waiting.next_due() == 30
    assert waiting.pop_due(29) is None
    assert waiting.pop_due(89) is soon
    assert waiting.pop_due(89) is None
    assert waiting.pop_due(90) is late
    assert waiting.next_due() is None


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


def test_bounces_wait_apart_and_late_ones_until_their_time() -> None:
    waiting = Waiting()
    now, later = entry(Area.BOUNCES), entry(Area.BOUNCES, 40)
    waiting.add(now)
    waiting.add(later)
    assert waiting.next_due() is None
    assert waiting.pop_bounce(10) is now
    assert waiting.has_bounces
    assert waiting.pop_bounce(39) is None
    assert waiting.pop_bounce(40) is later


# ---------------------------------------------------------------- accounts


def cluster(name: str, **changes: int) -> ClusterState:
    values = {"size": 100, "cursor": 15, "left": 3, "octets": 30, "received": 5, **changes}
    return ClusterState(name=name, **values)


def test_every_area_is_there_also_when_it_is_empty() -> None:
    stats = Accounts().stats([])
    assert set(stats) == set(Area)
    assert {(each.recipients, each.octets, each.oldest) for each in stats.values()} == {(0, 0, None)}


def test_entries_and_clusters_are_counted_together() -> None:
    accounts = Accounts()
    state = cluster("incoming/M1-0.mqc")
    accounts.add_cluster(state)
    each = entry(received=4)
    accounts.add_entry(each)
    found = accounts.stats([state])[Area.INCOMING]
    assert (found.recipients, found.octets, found.oldest) == (4, 40, 4)
    each.state = State.ENDED
    accounts.remove_entry(Area.INCOMING, each)
    accounts.take(Area.INCOMING, 2, 20)
    found = accounts.stats([state])[Area.INCOMING]
    assert (found.recipients, found.octets, found.oldest) == (1, 10, 5)


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


def test_the_oldest_is_found_in_whatever_order_mail_comes() -> None:
    accounts = Accounts()
    mail = {received: entry(received=received) for received in (50, 20, 70, 10, 60)}
    for each in mail.values():
        accounts.add_entry(each)
    for received in (10, 20, 50, 60, 70):
        assert accounts.stats([])[Area.INCOMING].oldest == received
        mail[received].state = State.ENDED
        accounts.remove_entry(Area.INCOMING, mail[received])
    assert accounts.stats([])[Area.INCOMING].oldest is None


# ---------------------------------------------------------------- the cluster index


@pytest.fixture
def cluster_index(tmp_path: Path) -> ClusterIndex:
    return ClusterIndex(Disk(), tmp_path)


def test_deferred_clusters_come_by_due_time(cluster_index: ClusterIndex) -> None:
    cluster_index.add(cluster("deferred/T60/M1-0.mqc", due=90, due_last=100))
    cluster_index.add(cluster("deferred/T0/M2-0.mqc", due=30, due_last=80))
    assert cluster_index.next_due() == 30
    assert cluster_index.first_due(29) is None
    assert cluster_index.first_due(30) == "deferred/T0/M2-0.mqc"
    cluster_index.advance(cluster("deferred/T0/M2-0.mqc", due=95, due_last=95, left=1))
    assert cluster_index.first_due(95) == "deferred/T60/M1-0.mqc"
    assert cluster_index.changed == {"deferred/T0/M2-0.mqc"}


def test_other_clusters_come_in_the_order_of_their_making(cluster_index: ClusterIndex) -> None:
    for name in ("incoming/M1-0.mqc", "incoming/M2-0.mqc", "bounces/M1-0.mqc"):
        cluster_index.add(cluster(name))
    assert cluster_index.first(Area.INCOMING) == "incoming/M1-0.mqc"
    cluster_index.advance(cluster("incoming/M1-0.mqc", left=0))
    assert cluster_index.first(Area.INCOMING) == "incoming/M2-0.mqc"
    assert cluster_index.first(Area.BOUNCES) == "bounces/M1-0.mqc"


def test_what_was_taken_after_an_edit_is_told_with_the_next(cluster_index: ClusterIndex) -> None:
    name = "incoming/M1-0.mqc"
    first, second = cluster(name, left=2), cluster(name, left=1)
    cluster_index.advance(first)
    told = {name: cluster_index.clusters[name]}
    cluster_index.advance(second)
    cluster_index.committed(told, ())
    assert cluster_index.changed == {name}
    cluster_index.committed({name: second}, ())
    assert cluster_index.changed == set()


def test_a_cluster_that_ended_is_forgotten(cluster_index: ClusterIndex) -> None:
    name = "incoming/M1-0.mqc"
    cluster_index.advance(cluster(name, left=0))
    cluster_index.committed({name: cluster_index.clusters[name]}, [name])
    assert cluster_index.clusters == {}
    assert cluster_index.changed == set()
