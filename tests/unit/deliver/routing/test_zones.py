"""Conditions on zones select the mail that goes out by them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqcd.config.settings import DeliverSettings, ZoneMatchSettings, ZoneSettings
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.selecting.live import resolved
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.deliver.routing.policy import Policies
from mqcd.queue.format import record
from mqcd.queue.format.choosing import chooser
from tests.unit.queue.support import recipient

SCHEDULE = RetrySchedule(delays=(900,), maxtime=9000, maxtime_reports=9000)
SENDERS = ["", "a@x.example", "A@X.example", "b*@x.example", "bc@x.example", "a@y.example", "postmaster"]
ADDRESSES = ["r@x.example", "r@sub.x.example", "r@Y.example.", "r@[192.0.2.1]", "postmaster"]


def some(*texts: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(texts), max_size=2).map(tuple)


MATCHES = st.builds(
    ZoneMatchSettings,
    sender=some("<>", "x.example", "a@x.example", "b*@X.example"),
    domain=some("*", "*.x.example", "x.example", "Y.example", "[192.0.2.1]"),
    listener=some("smtp", "submission"),
    header=some("X-Bulk"),
    user=some("joe", "ann"),
)


def _named(matches: list[tuple[ZoneMatchSettings, ...]]) -> tuple[ZoneSettings, ...]:
    return tuple(ZoneSettings(name=f"z{n}", matches=each) for n, each in enumerate(matches))


ZONES = st.lists(st.lists(MATCHES, max_size=2).map(tuple), max_size=3).map(_named)


@given(
    ZONES,
    st.fixed_dictionaries(
        {
            "sender": st.sampled_from(SENDERS),
            "address": st.sampled_from(ADDRESSES),
            "zone": st.sampled_from(["", "z0", "z1"]),
            "listener": st.sampled_from(["smtp", "other"]),
            "user": st.sampled_from(["", "joe"]),
            "route": st.sampled_from(["", "relay.example:25"]),
        }
    ),
)
def test_a_zone_selects_what_delivery_sends_by_it(
    zones: tuple[ZoneSettings, ...], fields: dict[str, str]
) -> None:
    policies = Policies(DeliverSettings(zones=zones), SCHEDULE)
    mail = recipient(**fields)
    own = policies.zone_of(mail.envelope, mail.lane_key)
    line = record.verify(record.encode(mail))
    for name, condition in policies.zones.items():
        asked = parse_where(f"zone = '{name}'", 0, live=True)
        where = resolved(asked, zones=policies.zones)
        assert where.root == condition
        assert where.matches(mail) is (name == own)
        # What another process gets is a text.
        again = parse_where(str(where), 0)
        chosen = chooser(Selection(where=again))
        assert chosen is not None
        assert chosen(line) is (name == own)
