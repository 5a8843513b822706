"""Reports on success, made from verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser

import pytest

from mqcd.config.settings import ReportSettings
from mqcd.core.model import Body, Origin, Recipient, Settlement, Submission
from mqcd.core.smtp.reply import Reply
from mqcd.report.dsn import format_date
from mqcd.report.making import ReportMaker
from tests.contract.mail import ATTEMPT, BODY, Post, bounced, deferred, delivered
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore

SETTINGS = ReportSettings(announcemta="mail.example.net", ndr_from="postmaster@example.net")


class Bench:
    """A maker beside a store that holds one claimed message."""

    def __init__(self, settings: ReportSettings = SETTINGS) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock, RecordingObserver())
        self.post = Post(self.store, self.clock)
        self.maker = ReportMaker(self.store, self.clock, settings, lambda _: True)

    async def claimed(self, *addresses: str, sender: str = "s@example.com", dsn: str = "") -> list[Recipient]:
        await self.store.open()
        submission = self.post.submission(*addresses, sender=sender, dsn=["NOTIFY=SUCCESS"] * len(addresses))
        submission = replace(submission, envelope=replace(submission.envelope, dsn=dsn))
        await self.store.enqueue(submission)
        return await self.post.claim_all()

    async def reports(self, recipients: Sequence[Recipient], final: bool = False) -> Sequence[Submission]:
        verdict = replace(delivered(), attempt=replace(ATTEMPT, at=self.clock.now()))
        told = [Settlement(recipient=each, verdict=verdict) for each in recipients]
        return await self.maker.delivered(told, final)

    async def delays(self, recipients: Sequence[Recipient]) -> Sequence[Submission]:
        now = self.clock.now()
        verdict = replace(deferred(now), attempt=replace(ATTEMPT, at=now), warning=now + 3_600_000)
        return await self.maker.delayed([Settlement(recipient=each, verdict=verdict) for each in recipients])


def parsed(submission: Submission) -> EmailMessage:
    assert isinstance(submission.content, bytes)
    message = BytesParser(policy=policy.default).parsebytes(submission.content)
    assert isinstance(message, EmailMessage)
    return message


@pytest.mark.parametrize(
    ("final", "action", "subject"),
    [(False, "relayed", "Mail Relay Report"), (True, "delivered", "Mail Delivery Report")],
)
async def test_the_sender_is_told_what_was_done(final: bool, action: str, subject: str) -> None:
    bench = Bench()
    recipients = await bench.claimed("a@example.org", "b@example.org", dsn="ENVID=id+2B1")
    [report] = await bench.reports(recipients, final)
    assert (report.envelope.sender, report.envelope.origin) == ("", Origin.REPORT)
    assert list(report.recipients) == ["s@example.com"]
    message = parsed(report)
    assert message["Subject"] == subject
    text = str(message)
    assert text.count(f"Action: {action}") == 2
    assert "Original-Envelope-Id: id+1" in text
    assert "Final-Recipient: rfc822; b@example.org" in text
    assert "Status: 2.0.0" in text
    assert "Remote-MTA: dns; mx.example.org" in text
    assert f"Last-Attempt-Date: {format_date(bench.clock.now())}" in text


@pytest.mark.parametrize("ret", ["RET=FULL", "RET=HDRS", ""])
async def test_success_returns_headers_alone(ret: str) -> None:
    bench = Bench()
    [report] = await bench.reports(await bench.claimed("a@example.org", dsn=ret))
    assert [part.get_content_type() for part in parsed(report).iter_parts()][-1] == "text/rfc822-headers"
    assert BODY.rpartition(b"\r\n\r\n")[2] not in bytes(report.content)  # type: ignore[arg-type]


async def test_a_report_on_a_failure_says_what_the_settings_say() -> None:
    said = replace(SETTINGS, ndr_subject="It came back", ndr_textpart="%PRODNAME% at %REPMTA% is sorry.")
    bench = Bench(said)
    await bench.post.settle(bounced(), *await bench.claimed("a@example.org"))
    message = parsed(await bench.maker.failed(await bench.post.claim_bounces()))
    assert (message["From"], message["Subject"]) == ("postmaster@example.net", "It came back")
    people, status, *_ = message.iter_parts()
    assert people.get_content().startswith("mqcd at mail.example.net is sorry.")
    assert "Reporting-MTA: dns; mail.example.net" in str(status)


@pytest.mark.parametrize(
    ("status", "head", "returned"),
    [
        ("5.1.1", b"Subject: x", ["message/rfc822"]),
        ("5.6.3", b"Subject: x", ["text/rfc822-headers"]),
        ("5.6.3", b"Subject: \xe4", []),
    ],
)
async def test_a_report_on_8_bit_mail_is_7_bit(status: str, head: bytes, returned: list[str]) -> None:
    bench = Bench()
    await bench.store.open()
    await bench.post.send("a@example.org", content=head + b"\r\n\r\n\xff\r\n")
    refusal = replace(bounced(), reply=Reply(code=554, status=status, text="refused"))
    await bench.post.settle(refusal, *await bench.post.claim_all())
    report = await bench.maker.failed(await bench.post.claim_bounces())
    assert [part.get_content_type() for part in parsed(report).iter_parts()][2:] == returned
    assert (report.envelope.body is Body.SEVEN) is (status == "5.6.3")


async def test_a_null_sender_is_not_told() -> None:
    bench = Bench()
    assert not await bench.reports(await bench.claimed("a@example.org", sender=""))
    assert not await bench.delays(await bench.post.claim_all())


async def test_a_report_on_a_delay_says_why_and_until_when() -> None:
    bench = Bench(replace(SETTINGS, ndr_subject="For failures", ndr_textpart="For failures"))
    [report] = await bench.delays(await bench.claimed("a@example.org", "b@example.org", dsn="RET=FULL"))
    assert (report.envelope.sender, report.envelope.origin) == ("", Origin.REPORT)
    assert list(report.recipients) == ["s@example.com"]
    message = parsed(report)
    assert message["Subject"] == "Mail Delay Report"
    text = str(message)
    until = format_date(bench.clock.now() + 3_600_000)
    assert text.count("Action: delayed") == text.count(f"Will-Retry-Until: {until}") == 2
    assert "Status: 4.2.1" in text
    assert "Diagnostic-Code: smtp; 450 4.2.1 busy" in text
    assert f"Last-Attempt-Date: {format_date(bench.clock.now())}" in text
    people, _, returned = message.iter_parts()
    assert "not be delivered yet" in people.get_content()
    assert until in " ".join(people.get_content().split())
    assert ": 450 4.2.1 busy" in people.get_content()
    assert returned.get_content_type() == "text/rfc822-headers"


async def test_no_reports_where_they_are_switched_off() -> None:
    bench = Bench(replace(SETTINGS, generate_ndr=False))
    recipients = await bench.claimed("a@example.org")
    assert not await bench.reports(recipients)
    assert not await bench.delays(recipients)


async def test_what_is_redirected_for_bounces_concerns_bounces() -> None:
    bench = Bench(replace(SETTINGS, ndr_recip_redirect=".", ndr_recips_additional=("x@example.net",)))
    [report] = await bench.reports(await bench.claimed("a@example.org"))
    assert list(report.recipients) == ["s@example.com"]


async def test_a_verdict_that_is_no_success_is_not_told() -> None:
    bench = Bench()
    [recipient] = await bench.claimed("a@example.org")
    assert not await bench.maker.delivered([Settlement(recipient=recipient, verdict=bounced())], False)
