"""The demonstration's findings: good when all is as it should be, and not when anything is otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqcd.core.events import Verb
from mqcd.demo import checks
from mqcd.demo.letters import BUSY, LARGE_OCTETS, REJECTING, SENDER, End, letters
from mqcd.demo.watching import Story
from mqcd.sink.outputs import Received

LETTER = letters()[0]
HEADER = b"Received: from desk.here.example\r\n\tby mail.here.example\r\n"


def story(end: End, *verbs: Verb) -> Story:
    return Story(kind="plain", address="ann@club.example", end=end, verbs=list(verbs))


def received(content: bytes, *recipients: str, sender: str = SENDER) -> Received:
    return Received(sender=sender, recipients=recipients, content=content, helo="", peer="", at_ms=0)


@pytest.mark.parametrize(
    ("end", "verbs", "ended"),
    [
        (End.DELIVERED, (Verb.ACCEPTED, Verb.ATTEMPTED, Verb.DELIVERED), True),
        (End.DELIVERED, (Verb.ACCEPTED, Verb.DEFERRED), False),
        (End.DELIVERED, (), False),
        (End.RETRIED, (Verb.DEFERRED, Verb.DELIVERED), True),
        (End.RETRIED, (Verb.DELIVERED,), False),
        (End.WAITING, (Verb.DEFERRED, Verb.DEFERRED), True),
        (End.WAITING, (Verb.DEFERRED,), False),
        (End.REPORTED, (Verb.BOUNCED, Verb.REPORTED), True),
        (End.REPORTED, (Verb.BOUNCED,), False),
    ],
)
def test_a_story_has_its_end(end: End, verbs: tuple[Verb, ...], ended: bool) -> None:
    assert story(end, *verbs).ended is ended
    assert checks.ends([story(end, *verbs)]).good is ended


def test_a_message_has_to_arrive_once_and_as_it_was_sent() -> None:
    (address,) = LETTER.recipients
    whole = received(HEADER + LETTER.content, address)
    assert checks.arrivals([LETTER], [whole]).good
    for arrived in (
        [],
        [whole, whole],
        [received(LETTER.content, address)],
        [received(HEADER + LETTER.content + b"more\r\n", address)],
        [received(HEADER + LETTER.content, "somebody@else.example")],
    ):
        finding = checks.arrivals([LETTER], arrived)
        assert not finding.good
        assert address in finding.text
    assert checks.arrivals([replace(LETTER, end=End.WAITING)], []).good


def test_one_report_has_to_come_on_the_right_recipient() -> None:
    right = received(f"<ivy@{REJECTING}> 5.1.1".encode(), SENDER, sender="")
    other = received(b"<ann@club.example> 5.1.1", SENDER, sender="")
    assert checks.reports([right]).good
    assert not checks.reports([]).good
    assert not checks.reports([right, other]).good
    assert not checks.reports([other]).good


def test_only_the_deferred_recipient_waits() -> None:
    assert checks.waiting([{"recipient": f"hal@{BUSY}"}], "now").good
    assert not checks.waiting([], "now").good
    assert not checks.waiting([{"recipient": "ann@club.example"}], "now").good


def test_the_ledger_has_to_balance() -> None:
    metrics = {
        "mqcd_recipients_accepted_total": 10.0,
        "mqcd_recipients_delivered_total": 8.0,
        "mqcd_recipients_bounced_total": 1.0,
        'mqcd_queue_recipients{area="deferred"}': 1.0,
        'mqcd_queue_recipients{area="held"}': 0.0,
    }
    assert checks.ledger(metrics).good
    assert not checks.ledger({**metrics, "mqcd_recipients_delivered_total": 9.0}).good
    assert not checks.ledger({}).good


def test_the_large_message_exceeds_inline_max() -> None:
    (large,) = [letter for letter in letters() if letter.kind == "large"]
    assert len(large.content) > LARGE_OCTETS
    assert max(map(len, large.content.split(b"\r\n"))) <= 998
