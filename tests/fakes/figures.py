"""Figures of a report, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mqcd.pipeline.report.figures import (
    Coverage,
    Figures,
    Listing,
    Moment,
    Reply,
    Sender,
    Shape,
    Site,
    Tried,
    Troubled,
    Waiting,
)
from mqcd.pipeline.tables.named import Named

T0 = 1_795_000_020_000
_HOUR = 3_600_000
_NONE = (
    "expired", "removed", "quarantined", "unknown", "duplicates", "possible_duplicates", "stuck", "imbalance",
    "unread",
)  # fmt: skip
_NOBODY = ("missing", "excess", "duplicated", "possibly_duplicated", "overdue", "others")


def account(**changed: Any) -> Any:
    """The sums of `mqcd.pipeline.account.account`, which cannot be imported without Spark."""
    sums = dict.fromkeys(_NONE, 0)
    sums |= {"accepted": 100, "delivered": 90, "bounced": 5, "queued": 5, "doubled": 0, "damaged": 0}
    lists: dict[str, Any] = {name: [] for name in _NOBODY}
    return SimpleNamespace(**(sums | lists | changed))


def figures(said: str = "Greylisted, come back") -> Figures:
    """Of a small log; `said` is what strangers chose: names, addresses, replies."""
    all_tried = Tried(
        attempts=100, delivered=90, deferred=7, bounced=2, expired=1, first_attempts=95, first_delivered=85,
        tls=50, latency=(300, 4_000, 7_200_000),
    )  # fmt: skip
    half = Tried(
        attempts=60, delivered=57, deferred=2, bounced=1, first_attempts=58, first_delivered=55, tls=50,
        latency=(200, 900, 5_000),
    )  # fmt: skip
    site = Site(name=said, tried=half, last=Reply(at=T0, code=451, status="4.7.1", text=said))
    sender = Sender(
        name=said, messages=9, octets=90_000, accepted=60, delivered=50, deferred=5, bounced=2, expired=0
    )
    everybody = Sender(
        name="", messages=20, octets=200_000, accepted=100, delivered=90, deferred=7, bounced=2, expired=1
    )
    shape = Shape(
        kind=said, count=7, deferred=7, bounced=0, expired=0, shape=said, code=451, status="4.7.1", sites=2,
        example=said,
    )  # fmt: skip
    person = Named(
        id="195137105E800002/1",
        recipient=said,
        site=said,
        accepted=T0,
        due=None,
        attempts=3,
        status=None,
        reply=said,
    )
    bad = Troubled(
        site=said, lost=5, waiting=2, recipients=10, before=(1, 20), cause="connection",
        last=Reply(at=T0, code=None, status="4.4.1", text=said),
    )  # fmt: skip
    moments = (
        Moment(at=T0 // _HOUR * _HOUR, accepted=70, tried=half),
        Moment(at=T0 // _HOUR * _HOUR + _HOUR, accepted=0, tried=Tried()),
        Moment(at=T0 // _HOUR * _HOUR + 2 * _HOUR, accepted=30, tried=all_tried),
    )
    return Figures(
        coverage=Coverage(
            made=T0 + _HOUR, since=T0, until=T0 + 2 * _HOUR, nodes=(said, "n2"), node_count=3, events=400,
            batch=2, files=7,
        ),
        moments=moments,
        waiting=(
            Waiting(at=moments[0].at, recipients={"0-5m": 3}),
            Waiting(at=moments[1].at, recipients={"5d-": 1}),
        ),
        ages=("0-5m", "5m-1h", "5d-"),
        account=account(),
        outcomes={"delivered": 90, "queued": 5, "bounced": 5},
        total=all_tried,
        accepted=100,
        sites=Listing(rows=(site,), total=3),
        troubled=Listing(rows=(bad,), total=1),
        worst=(site,),
        senders=Listing(rows=(sender,), total=2),
        all_senders=everybody,
        classes=(shape,),
        replies=Listing(rows=(shape,), total=2),
        refusals=10,
        duplicates=Listing(rows=(person,), total=1),
        stuck=Listing(rows=(person,), total=30),
    )  # fmt: skip
