"""Figures over all lanes, taken from a table with mail in it."""

from __future__ import annotations

from mqcd.config.settings import TlsPolicy
from mqcd.core.model import Envelope, Recipient
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.deliver.lanes.gauging import gauge
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Bounds
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.routing.policy import Hop, Policy, hop
from mqcd.deliver.routing.routing import Destination

NOW = 1000


def to(name: str, zone: str = "") -> Hop:
    schedule = RetrySchedule(delays=(NOW,), maxtime=NOW, maxtime_reports=NOW)
    policy = Policy(schedule=schedule, helo="me.example", tls=TlsPolicy.MAY, connections=20, zone=zone)
    return hop(Destination(name=name, hosts=((name,),), port=25), policy)


def recipient(number: int, received: int) -> Recipient:
    envelope = Envelope(spid=number << 1, sender="s@example.com", received=received)
    return Recipient(envelope=envelope, size=1, qid=1, address=f"a{number}@x.example")


def table() -> LaneTable:
    made = LaneTable(Bounds(queuecache=1000, maxconnections=100, maxrecips=50))
    mail = [
        ("a.example", "", 500),
        ("a.example", "", 300),
        ("a.example", "bulk", 400),
        ("b.example", "", 700),
        ("c.example", "bulk", 100),
    ]
    for number, (site, zone, received) in enumerate(mail, 1):
        made.entering.add(recipient(number, received), "x.example", to(site, zone), NOW)
    return made


def test_lanes_of_one_destination_are_listed_together() -> None:
    gauges = gauge(table().lanes(), [], {"a.example"})
    assert gauges.lanes == 4
    assert gauges.waiting == {"a.example": 3, "": 2}
    assert gauges.oldest == {"a.example": 300, "b.example": 700, "c.example": 100}
    assert not gauges.connections


def test_connections_are_counted_by_zone_and_site() -> None:
    lanes = table()
    started = lanes.dispatch(NOW)
    under_way: list[tuple[Job, int]] = [(start.job, NOW) for start in started]
    gauges = gauge(lanes.lanes(), under_way, {"a.example", "b.example"})
    assert gauges.connections == {"": 3, "bulk": 2}
    assert gauges.site_connections == {"a.example": 3, "b.example": 1, "": 1}
    assert gauges.waiting == {}
    assert gauges.oldest == {"a.example": 300, "b.example": 700, "c.example": 100}


def test_a_lane_that_has_nothing_is_not_in_use() -> None:
    lanes = LaneTable(Bounds(queuecache=1000, maxconnections=100, maxrecips=50))
    lanes.entering.add(recipient(1, 500), "x.example", to("a.example"), NOW)
    [start] = lanes.dispatch(NOW)
    lanes.closed(start.lane, NOW, working=False)
    gauges = gauge(lanes.lanes(), [], ())
    assert (gauges.lanes, gauges.oldest) == (0, {})
