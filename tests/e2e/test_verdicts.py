"""Each recipient has its own verdict; failures come back as reports, deferrals go out again when due."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage

import pytest

from mqcd.sink.outputs import Received
from tests.e2e.conftest import MakePeer, MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.ledger import stopped
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Script

SENDER = "sender@origin.test"


def parts_of(report: Received) -> tuple[EmailMessage, list[EmailMessage], EmailMessage]:
    """A report by Python's own parser: the text, the blocks of the delivery status, what it returns."""
    assert report.sender == ""
    message = email.message_from_bytes(report.content, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    assert message.get_content_type() == "multipart/report"
    assert message.get_param("report-type") == "delivery-status"
    assert message["To"] == SENDER
    text, status, original = message.iter_parts()
    assert isinstance(text, EmailMessage)
    assert isinstance(original, EmailMessage)
    assert status.get_content_type() == "message/delivery-status"
    assert not message.defects
    payload = status.get_payload()
    assert isinstance(payload, list)
    blocks = [block for block in payload if isinstance(block, EmailMessage)]
    assert len(blocks) == len(payload) >= 2
    return text, blocks, original


def test_several_recipients_each_with_a_verdict_of_its_own(
    make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    receiver = make_receiver("later-*=450 4.2.1 Mailbox busy", "no-*=550 5.1.1 No such user")
    server = make_server(Plan(relays=relay(receiver.port))).start()
    names = ["good-1", "later-1", "no-1", "good-2", "no-2", "later-2", "good-3"]
    recipients = {name: f"{name}@example.test" for name in names}
    content = mail.message("several", lines=30)
    mail.send(server.port, content, list(recipients.values()), sender=SENDER)

    for name, recipient in recipients.items():
        if name.startswith("good"):
            assert mail.sent_part(receiver.to(recipient).content) == content
            assert server.event("delivered", recipient=recipient)["code"] == 250
        elif name.startswith("no"):
            told = server.event("bounced", recipient=recipient)
            assert (told["code"], told["status"], told["phase"]) == (550, "5.1.1", "rcpt")
        else:
            told = server.event("deferred", recipient=recipient)
            assert (told["code"], told["status"], told["phase"]) == (450, "4.2.1", "rcpt")

    _, (about, *blocks), original = parts_of(receiver.to(SENDER))
    assert about["Reporting-MTA"] == "dns; mqcd.test"
    assert {block["Final-Recipient"] for block in blocks} == {
        "rfc822; no-1@example.test",
        "rfc822; no-2@example.test",
    }
    for block in blocks:
        assert (block["Action"], block["Status"]) == ("failed", "5.1.1")
        assert block["Diagnostic-Code"].startswith("smtp; 550 5.1.1 No such user")
        assert "127.0.0.1" in block["Remote-MTA"]
    assert original.get_content_type() == "message/rfc822"
    assert "Subject: several" in original.as_string()

    waiting = {row["recipient"]: row for row in server.queue_ls()}
    assert waiting.keys() == {recipients["later-1"], recipients["later-2"]}
    for row in waiting.values():
        assert (row["status"], row["reply"], row["sender"]) == ("4.2.1", "450 Mailbox busy", SENDER)
        assert row["attempts"] >= 1

    receiver.follow()
    for name in ("later-1", "later-2"):
        assert mail.sent_part(receiver.to(recipients[name]).content) == content
        server.event("delivered", recipient=recipients[name])
    server.metric("mqcd_queue_recipients{deferred}", 0)
    assert all(receiver.count(recipient) == 1 for name, recipient in recipients.items() if name[:2] != "no")
    assert receiver.count(SENDER) == 1
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    assert sum(ledger.count("reported").values()) == 2


def test_a_delay_is_reported_once_over_restarts(make_server: MakeServer, make_receiver: MakeReceiver) -> None:
    receiver = make_receiver("*@example.test=450 4.2.1 Mailbox busy")
    plan = Plan(relays=relay(receiver.port), report={"delay_warning": "2s"})
    server = make_server(plan).start()
    wishes = {"asks": "NOTIFY=DELAY ORCPT=rfc822;a@other.test", "silent": "", "fails": "NOTIFY=FAILURE"}
    mail.ask_for_reports(server.port, "late", SENDER, "RET=FULL ENVID=late", **wishes)
    people, (about, *blocks), original = parts_of(receiver.to(SENDER))
    # Else the kill may hide that it was delivered.
    server.event("delivered", recipient=SENDER)
    server.kill()
    assert about["Original-Envelope-Id"] == "late"
    [block] = blocks
    assert block["Final-Recipient"] == "rfc822; asks@example.test"
    assert (block["Action"], block["Status"]) == ("delayed", "4.2.1")
    assert block["Will-Retry-Until"]
    assert original.get_content_type() == "text/rfc822-headers"
    assert "could not be delivered yet" in people.get_content()

    server.start()
    server.events("deferred", 3, recipient="asks@example.test")
    receiver.follow()
    for name in wishes:
        receiver.to(f"{name}@example.test")
    assert receiver.count(SENDER) == 1
    ledger = stopped(server)
    assert ledger.unfinished() == set()


def test_a_report_that_fails_is_discarded_and_counted(
    make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    receiver = make_receiver("*=550 5.1.1 No such user")
    server = make_server(Plan(relays=relay(receiver.port))).start()
    mail.send(server.port, mail.message("no"), "no@example.test", sender=SENDER)
    server.event("reported", recipient="no@example.test")
    assert server.event("bounced", recipient=SENDER)["sender"] == ""
    figures = server.metrics()
    assert figures["mqcd_recipients_bounced_total"] == 2
    assert figures["mqcd_reports_total"] == 1
    assert figures["mqcd_reports_failed_total"] == 1
    assert server.queue_ls() == []
    ledger = stopped(server)
    assert len(ledger.count("accepted")) == 2, "nothing was written about the report"


def test_mail_that_grows_too_old_is_reported(make_server: MakeServer, make_receiver: MakeReceiver) -> None:
    receiver = make_receiver("old@*=450 4.2.1 Mailbox busy")
    server = make_server(Plan(relays=relay(receiver.port), queue={"retry_maxtime": "3s"})).start()
    mail.send(server.port, mail.message("old"), "old@example.test", sender=SENDER)
    server.event("expired", recipient="old@example.test")
    _, (_, block), _ = parts_of(receiver.to(SENDER))
    assert block["Final-Recipient"] == "rfc822; old@example.test"
    assert block["Action"] == "failed"
    assert "Mailbox busy" in block["Diagnostic-Code"]
    server.metric("mqcd_recipients_expired_total", 1)
    server.metric("mqcd_queue_recipients{incoming}", 0)
    ledger = stopped(server)
    assert ledger.unfinished() == set()


def test_one_recipients_refusal_is_not_the_others(make_server: MakeServer, make_peer: MakePeer) -> None:
    """RCPT 450 for one and 554 at the final dot: that one waits, only the other has failed."""
    peer = make_peer(Script(refused={"later@example.test": "450 4.2.1 Busy"}, dot="554 5.6.0 Do not want"))
    server = make_server(Plan(relays=relay(peer.port), queue={"retry_delays": "1h"})).start()
    mail.send(server.port, mail.message("both"), ["later@example.test", "now@example.test"], sender="")
    deferred = server.event("deferred", recipient="later@example.test")
    bounced = server.event("bounced", recipient="now@example.test")
    assert (deferred["code"], deferred["phase"]) == (450, "rcpt")
    assert (bounced["code"], bounced["phase"]) == (554, "dot")
    assert [row["recipient"] for row in server.queue_ls("--area", "deferred")] == ["later@example.test"]
    assert server.stop() == 0


FAULTS = {
    "drop:rcpt": "rcpt",
    "drop:data": "data",
    "drop:dot": "dot",
    "stall:data": "dot",
    "stall:dot": "dot",
    "421 4.3.2 Going down": "rcpt",
}
"""What the sink does, and the phase in which that leaves the attempt."""


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_counts_as_delivered_without_a_250(
    make_server: MakeServer, make_receiver: MakeReceiver, fault: str
) -> None:
    receiver = make_receiver(f"*={fault}")
    # Fewer than make a destination count as dead, and time to look before the second attempt.
    recipients = [f"fault-{number}@example.test" for number in range(2)]
    server = make_server(
        Plan(relays=relay(receiver.port), client={"timeout": "200ms"}, queue={"retry_delays": "3s"})
    ).start()
    for recipient in recipients:
        mail.send(server.port, mail.message(recipient), recipient, sender=SENDER)
    for told in server.events("deferred", 2):
        assert (told["code"] // 100, told["phase"]) == (4, FAULTS[fault])
    server.metric("mqcd_recipients_delivered_total", 0)
    assert {row["recipient"] for row in server.queue_ls()} == set(recipients)
    assert server.seen("delivered") == server.seen("bounced") == []
    assert len(receiver.mail) == 0

    receiver.follow()
    for recipient in recipients:
        assert mail.sent_part(receiver.to(recipient).content) == mail.message(recipient)
        server.event("delivered", recipient=recipient)
    assert [receiver.count(recipient) for recipient in recipients] == [1, 1]
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    # Only behind the final dot may a copy have been taken; that is said, and said of nothing else.
    perhaps = [event for event in ledger.events if event.get("possibly_delivered")]
    assert bool(perhaps) == (fault in ("drop:dot", "stall:data", "stall:dot"))
