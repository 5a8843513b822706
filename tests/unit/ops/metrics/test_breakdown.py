"""What is counted under which label."""

from __future__ import annotations

from dataclasses import replace

from mqcd.core.model import Attempt, Deferred, Envelope, Origin, Recipient
from mqcd.core.ports import Refusal
from mqcd.core.smtp.classes import OutcomeClass
from mqcd.core.smtp.reply import Reply
from mqcd.ops.metrics.breakdown import MOST_NAMES, MOST_REASONS, Breakdown, Listener, Named
from mqcd.ops.metrics.leaders import OTHER
from tests.contract.mail import ATTEMPT, bounced, deferred, delivered, expired

MAIL = Recipient(
    envelope=Envelope(spid=2, sender="s@example.com", received=1000, listener="mx", tls="TLSv1.3"),
    size=5000,
    qid=1,
    address="a@example.org",
)


def to(site: str, zone: str = "", tls: str = "", ms: int = 0) -> Attempt:
    return replace(ATTEMPT, destination=site, zone=zone, tls=tls, attempt_ms=ms)


def test_mail_in_is_counted_by_listener_and_tls() -> None:
    figures = Breakdown()
    figures.accepted(0, [MAIL, replace(MAIL, qid=2)])
    figures.accepted(0, [replace(MAIL, envelope=replace(MAIL.envelope, tls=""))])
    mx = figures.listeners["mx"]
    assert mx.messages == {"TLSv1.3": 1, "none": 1}
    assert mx.recipients == 3
    assert (sum(mx.sizes.counts), mx.sizes.total) == (2, 10_000)


def test_what_is_configured_is_told_from_the_start() -> None:
    figures = Breakdown(listeners=["mx", "submission"], zones=["bulk"])
    assert {name: each.messages for name, each in figures.listeners.items()} == {
        "mx": {"none": 0},
        "submission": {"none": 0},
    }
    assert {name: each.by_tls for name, each in figures.zones.items()} == {
        "": {"none": 0},
        "bulk": {"none": 0},
    }


def test_reports_came_in_by_no_listener() -> None:
    figures = Breakdown()
    figures.accepted(0, [replace(MAIL, envelope=replace(MAIL.envelope, origin=Origin.REPORT))])
    assert not figures.listeners


def test_verdicts_are_counted_by_zone_and_site() -> None:
    figures = Breakdown()
    figures.delivered(4000, MAIL, replace(delivered(), attempt=to("a.example", "bulk", "TLSv1.2", 60)))
    figures.deferred(0, MAIL, replace(deferred(9), attempt=to("a.example", "bulk")))
    figures.bounced(0, MAIL, replace(bounced(), attempt=to("b.example")))
    figures.expired(0, MAIL, replace(expired(), attempt=to("b.example")))
    sites = dict(figures.sites)
    assert sites["a.example"].verdicts == {"delivered": 1, "deferred": 1, "bounced": 0, "expired": 0}
    assert sites["b.example"].verdicts == {"delivered": 0, "deferred": 0, "bounced": 1, "expired": 1}
    assert sites["a.example"].durations.total == 60
    bulk = figures.zones["bulk"]
    assert bulk.verdicts == {"delivered": 1, "deferred": 1, "bounced": 0, "expired": 0}
    assert bulk.by_tls == {"TLSv1.2": 1, "none": 0}
    assert (sum(bulk.queued.counts), bulk.queued.total) == (1, 3000)
    assert sum(figures.zones[""].verdicts.values()) == 2


def test_replies_are_counted_by_their_classes() -> None:
    figures = Breakdown()
    for code, status in ((450, "4.2.1"), (451, "4.2.2"), (451, "4.7.1"), (451, "")):
        reply = Reply(code=code, status=status)
        figures.deferred(0, MAIL, Deferred(reply=reply, attempt=ATTEMPT, due=5))
    figures.delivered(0, MAIL, delivered())
    assert figures.replies == {
        ("deferred", "4xx", "mailbox"): [2],
        ("deferred", "4xx", "policy"): [1],
        ("deferred", "4xx", "system"): [1],
        ("delivered", "2xx", "success"): [1],
    }


def test_however_replies_look_their_number_is_bounded() -> None:
    figures = Breakdown()
    for number in range(5000):
        reply = Reply(code=400 + number % 100, status=f"4.{number % 12}.{number}")
        figures.deferred(0, MAIL, Deferred(reply=reply, attempt=ATTEMPT, due=5))
    assert len(figures.replies) == len(OutcomeClass) - 1
    assert sum(count for [count] in figures.replies.values()) == 5000


def test_refusals_are_counted_by_listener() -> None:
    figures = Breakdown()
    figures.refused(0, Refusal(reason="relay", reply=Reply(code=550), listener="mx"))
    figures.refused(0, Refusal(reason="relay", reply=Reply(code=550), listener="mx"))
    figures.refused(0, Refusal(reason="store", reply=Reply(code=452), listener="mx"))
    assert figures.refusals == {("mx", "relay", "5xx"): 2, ("mx", "store", "4xx"): 1}
    for number in range(1000):
        figures.refused(0, Refusal(reason=f"word{number}", reply=Reply(code=550), listener="mx"))
    assert len(figures.refusals) == MOST_REASONS + 1


def test_connections_are_counted_by_site() -> None:
    figures = Breakdown()
    figures.connected(0, replace(ATTEMPT, destination="a.example"))
    figures.connected(0, replace(ATTEMPT, destination="a.example"))
    figures.connect_failed(0, replace(ATTEMPT, destination="b.example"), "refused")
    sites = dict(figures.sites)
    assert (sites["a.example"].connections, sites["b.example"].failed_connections) == (2, 1)


def test_the_oldest_that_was_put_off_is_known_until_it_ends() -> None:
    figures = Breakdown()
    old = replace(MAIL, envelope=replace(MAIL.envelope, spid=4, received=300))
    attempt = to("a.example")
    for mail in (MAIL, old):
        figures.deferred(0, mail, replace(deferred(9000), attempt=attempt))
    assert figures.elders.oldest(0) == {"a.example": 300}
    figures.delivered(0, replace(old, attempts=1), replace(delivered(), attempt=attempt))
    assert figures.elders.oldest(0) == {}


def test_names_of_zones_are_bounded() -> None:
    named: Named[Listener] = Named(Listener)
    for number in range(3 * MOST_NAMES):
        named[f"zone{number}"].recipients += 1
    assert len(named) == MOST_NAMES + 1
    assert named[OTHER].recipients == 2 * MOST_NAMES
