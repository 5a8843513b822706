"""Which domains are held, and whose queue a held record is in."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from mqcd.core.model import Area, Envelope, Recipient
from mqcd.core.queueing.holding import HeldDomain, Holding, HoldMode
from mqcd.core.queueing.transition import arrived

HOLDING = Holding(
    domains=(
        HeldDomain("office.example", HoldMode.ETRN),
        HeldDomain("*.office.example", HoldMode.ATRN),
        HeldDomain("open.branch.office.example", HoldMode.HOLD),
    ),
    maxtime=1000,
)
RECIPIENT = Recipient(
    envelope=Envelope(spid=4, sender="a@b.example", received=50), size=1, qid=1, address="x@office.example"
)
LONG = f"{'long.' * 50}office.example"


@pytest.mark.parametrize(
    ("domain", "mode"),
    [
        ("office.example", HoldMode.ETRN),
        ("branch.office.example", HoldMode.ATRN),
        ("a.branch.office.example", HoldMode.ATRN),
        ("open.branch.office.example", HoldMode.HOLD),
        ("myoffice.example", None),
        ("example", None),
        ("", None),
        ("a/b.office.example", None),
        (LONG, None),
    ],
)
def test_the_closest_name_counts(domain: str, mode: HoldMode | None) -> None:
    assert HOLDING.mode(domain) is mode


def test_a_star_is_every_other_domain() -> None:
    every = Holding(domains=(HeldDomain("*", HoldMode.HOLD), HeldDomain("a.example", HoldMode.ETRN)))
    assert (every.mode("a.example"), every.mode("b.example")) == (HoldMode.ETRN, HoldMode.HOLD)


def test_no_setting_holds_nothing() -> None:
    assert not Holding()
    assert Holding().mode("office.example") is None


def test_it_travels_to_the_helper_process() -> None:
    again = pickle.loads(pickle.dumps(HOLDING))
    assert again == HOLDING
    assert again.mode("office.example") is HoldMode.ETRN


@pytest.mark.parametrize(
    ("address", "area", "due"),
    [
        ("x@office.example", Area.INCOMING, 0),
        ("x@a.office.example", Area.HELD, 1050),
        ("x@open.branch.office.example", Area.HELD, 0),
        ("x@other.example", Area.INCOMING, 0),
    ],
)
def test_new_mail_is_held_by_its_domains_mode(address: str, area: Area, due: int) -> None:
    record = arrived(replace(RECIPIENT, address=address), 60, HOLDING)
    assert (record.area, record.due) == (area, due)


def test_an_operators_next_hop_is_no_etrn_domain() -> None:
    assert HOLDING.rests(RECIPIENT)
    assert not HOLDING.rests(replace(RECIPIENT, route="relay.example:25"))


@pytest.mark.parametrize(
    ("domain", "due", "queue"),
    [
        ("x.example", 0, ""),
        ("x.example", 7, "x.example"),
        ("office.example", 0, ""),
        ("office.example", 7, "office.example"),
        (LONG, 7, ""),
    ],
)
def test_queues_are_named_by_their_domain(domain: str, due: int, queue: str) -> None:
    assert HOLDING.queue_of(domain, due) == queue
