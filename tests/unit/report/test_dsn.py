"""Reports, read back with Python's own mail parser."""

from __future__ import annotations

import re
from dataclasses import replace
from email import policy
from email.message import EmailMessage, Message
from email.parser import BytesParser
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.model import Area, Envelope, Recipient
from mqcd.report.dsn import Action, Notice, Report, compose, format_date, wants_failures
from mqcd.report.original import Excerpt, excerpt

RECEIVED = 1_800_000_000_000
SPID = 0x0123_4567_89AB_CDE0
ORIGINAL = b"From: s@example.com\r\nSubject: lost\r\n\r\nWhere is it?\r\n"

BOUNCE = Recipient(
    envelope=Envelope(spid=SPID, sender="s@example.com", received=RECEIVED),
    size=len(ORIGINAL),
    qid=1,
    address="a@example.org",
    area=Area.BOUNCES,
    attempts=1,
    code=550,
    status="5.1.1",
    reply="no such user",
    remote="mx.example.org",
)


def notice(*bounces: Recipient, original: bytes = ORIGINAL) -> Notice:
    return Notice(
        spid=SPID + 2,
        date=RECEIVED + 90_000,
        reporting_mta="mail.example.net",
        from_address="postmaster@example.net",
        to_address="s@example.com",
        subject="Delivery Failure Report",
        introduction="",
        recipients=bounces or (BOUNCE,),
        original=excerpt(original, len(original), headers_only=False),
    )


def parse(report: Report) -> EmailMessage:
    message = BytesParser(policy=policy.default).parsebytes(report.content)
    assert isinstance(message, EmailMessage)
    assert all(not part.defects for part in message.walk())
    lines = report.content.split(b"\r\n")
    assert max(len(line) for line in lines) <= 998
    assert not any(b"\r" in line or b"\n" in line for line in lines)
    assert report.eight_bit or report.content.isascii()
    return message


def parts(message: EmailMessage) -> list[EmailMessage]:
    found = []
    for part in message.iter_parts():
        assert isinstance(part, EmailMessage)
        found.append(part)
    return found


def status_blocks(part: EmailMessage) -> list[list[tuple[str, str]]]:
    """The field blocks of a status part: the message's, then one per recipient."""
    if part.get_content_type() == "message/delivery-status":
        blocks = part.get_payload()
        assert isinstance(blocks, list)
        return [
            [(name, str(value)) for name, value in block.items()]
            for block in blocks
            if isinstance(block, Message)
        ]
    # The parser has no notion of message/global-delivery-status, so the blocks are taken by hand.
    payload = part.as_bytes(policy=policy.SMTP).partition(b"\r\n\r\n")[2].decode()
    return [
        [(line.partition(": ")[0], line.partition(": ")[2]) for line in block.split("\r\n")]
        for block in payload.strip().split("\r\n\r\n")
    ]


def test_the_header() -> None:
    message = parse(compose(notice()))
    assert message["From"] == "postmaster@example.net"
    assert message["To"].addresses[0].addr_spec == "s@example.com"
    assert message["Subject"] == "Delivery Failure Report"
    assert message["Auto-Submitted"] == "auto-replied"
    assert message["MIME-Version"] == "1.0"
    assert message["Message-ID"] == "<0123456789ABCDE2.0123456789ABCDE0@mail.example.net>"
    assert parsedate_to_datetime(message["Date"]).timestamp() * 1000 == RECEIVED + 90_000
    assert message.get_content_type() == "multipart/report"
    assert message["Content-Type"].params["report-type"] == "delivery-status"
    assert [part.get_content_type() for part in parts(message)] == [
        "text/plain",
        "message/delivery-status",
        "message/rfc822",
    ]


def test_the_status_fields() -> None:
    second = replace(
        BOUNCE, qid=2, address="b@example.org", code=450, status="", reply="greylisted", attempts=9
    )
    third = replace(BOUNCE, qid=3, address="c@example.org", code=0, status="", reply="", remote="")
    fourth = replace(BOUNCE, qid=4, address="d@nowhere.example", status="5.1.2", reply="no MX", remote="")
    message = parse(compose(notice(BOUNCE, second, third, fourth)))
    assert status_blocks(parts(message)[1]) == [
        [
            ("Reporting-MTA", "dns; mail.example.net"),
            ("Arrival-Date", format_date(RECEIVED)),
            ("X-mqcd-SPID", "0123456789ABCDE0"),
        ],
        [
            ("Final-Recipient", "rfc822; a@example.org"),
            ("Action", "failed"),
            ("Status", "5.1.1"),
            ("Remote-MTA", "dns; mx.example.org"),
            ("Diagnostic-Code", "smtp; 550 5.1.1 no such user"),
        ],
        [
            ("Final-Recipient", "rfc822; b@example.org"),
            ("Action", "failed"),
            ("Status", "4.0.0"),
            ("Remote-MTA", "dns; mx.example.org"),
            ("Diagnostic-Code", "smtp; 450 greylisted"),
        ],
        [("Final-Recipient", "rfc822; c@example.org"), ("Action", "failed"), ("Status", "4.4.7")],
        [
            ("Final-Recipient", "rfc822; d@nowhere.example"),
            ("Action", "failed"),
            ("Status", "5.1.2"),
            ("Diagnostic-Code", "x-mqcd; 550 5.1.2 no MX"),
        ],
    ]


def test_what_the_sender_gave_with_dsn_parameters_comes_back() -> None:
    envelope = replace(BOUNCE.envelope, dsn="RET=FULL ENVID=QQ+3D314159")
    bounce = replace(BOUNCE, envelope=envelope, dsn="NOTIFY=FAILURE ORCPT=rfc822;a+2Bb@example.org")
    message, recipient = status_blocks(parts(parse(compose(notice(bounce))))[1])
    assert ("Original-Envelope-Id", "QQ=314159") in message
    assert recipient[0] == ("Original-Recipient", "rfc822; a+b@example.org")


def test_what_is_not_xtext_comes_back_as_it_was() -> None:
    bounce = replace(BOUNCE, dsn="ORCPT=rfc822;a+zz@example.org")
    _, recipient = status_blocks(parts(parse(compose(notice(bounce))))[1])
    assert recipient[0] == ("Original-Recipient", "rfc822; a+zz@example.org")


def test_people_read_who_failed_and_why() -> None:
    late = replace(BOUNCE, address="b@example.org", code=450, status="4.2.1", reply="busy", attempts=9)
    alone = replace(late, address="c@example.org", attempts=1, remote="", code=0, status="", reply="")
    text = parts(parse(compose(notice(BOUNCE, late, alone))))[0].get_content()
    flat = " ".join(text.split())
    assert "mail server mail.example.net." in flat
    assert "to the recipients below" in flat
    assert re.search("<a@example.org> .*mx.example.org .*: 550 5.1.1 no such user", flat)
    assert re.search("<b@example.org> .* age .* 9 attempts. .*mx.example.org .*<c@", flat)
    assert re.search("<c@example.org> .* age .* one attempt.", flat)
    assert "Your message is attached." in flat


@pytest.mark.parametrize(
    ("code", "status", "remote", "says"),
    [
        (450, "4.2.2", "mx rcpt 7 bounced", ""),
        (550, "5.2.2", "mx rcpt 7 expired", "for its age after one attempt"),
        (451, "4.4.7", " route 7 expired", "for its age. The reason"),
    ],
)
def test_age_is_the_reason_where_it_was(code: int, status: str, remote: str, says: str) -> None:
    bounce = replace(BOUNCE, code=code, status=status, remote=remote)
    text = " ".join(parts(parse(compose(notice(bounce))))[0].get_content().split())
    assert ("for its age" in text) is bool(says)
    assert says in text


def test_the_text_names_a_hundred_and_the_status_all() -> None:
    many = [replace(BOUNCE, qid=n, address=f"r{n}@example.org") for n in range(1, 251)]
    text, status, _ = parts(parse(compose(notice(*many))))
    assert text.get_content().count("@example.org>") == 100
    assert len(status_blocks(status)) == 1 + 250


def test_the_text_may_be_the_operators_own() -> None:
    own = replace(notice(), introduction="Grüße von %PRODNAME% auf %REPMTA%.\n" + "lang " * 400)
    part = parts(parse(compose(own)))[0]
    text = part.get_content()
    assert part.get_content_charset() == "utf-8"
    assert text.startswith("Grüße von mqcd auf mail.example.net.")
    assert text.count("lang") == 400
    assert "<a@example.org>" in text


def test_the_message_comes_back_as_it_was() -> None:
    [returned] = parts(parts(parse(compose(notice())))[2])
    assert returned.as_bytes(policy=policy.SMTP) == ORIGINAL


def test_a_cut_message_says_so() -> None:
    cut = replace(notice(), original=excerpt(ORIGINAL, 100_000, headers_only=False))
    text, _, returned = parts(parse(compose(cut)))
    assert "beginning of your message" in text.get_content()
    assert returned["Content-Description"] == "The beginning of the message"
    assert returned.get_content_type() == "message/rfc822"


def test_headers_alone_have_their_own_type() -> None:
    headers = replace(notice(), original=excerpt(ORIGINAL, len(ORIGINAL), headers_only=True))
    text, _, returned = parts(parse(compose(headers)))
    assert "header of your message" in text.get_content()
    assert returned["Content-Description"] == "The header of the message"
    assert returned.get_content_type() == "text/rfc822-headers"
    assert returned.get_content() == "From: s@example.com\r\nSubject: lost\r\n"


@pytest.mark.parametrize("original", [None, excerpt(b"Subj", 4000, headers_only=False)])
def test_a_report_without_the_message(original: Excerpt | None) -> None:
    message = parse(compose(replace(notice(), original=original)))
    assert [part.get_content_type() for part in parts(message)] == ["text/plain", "message/delivery-status"]
    assert "attached" not in parts(message)[0].get_content()


def test_a_message_of_8_bit_text_makes_an_8_bit_report() -> None:
    report = compose(notice(original=b"Subject: x\r\n\r\n\xc3\xbc\xff\r\n"))
    message = parse(report)
    assert (report.eight_bit, report.smtputf8) == (True, False)
    assert message["Content-Transfer-Encoding"] == "8bit"
    assert parts(message)[2]["Content-Transfer-Encoding"] == "8bit"
    assert b"\r\n\r\n\xc3\xbc\xff\r\n" in report.content
    assert not compose(notice()).eight_bit


def test_addresses_beyond_ascii_use_the_global_types() -> None:
    envelope = replace(BOUNCE.envelope, sender="ß@exämple.com", smtputf8=True)
    bounce = replace(BOUNCE, envelope=envelope, address="ü@exämple.org")
    international = notice(bounce, original="From: ß@exämple.com\r\n\r\nHi\r\n".encode())
    report = compose(replace(international, to_address=envelope.sender))
    message = parse(report)
    assert (report.eight_bit, report.smtputf8) == (True, True)
    assert message["Content-Type"].params["report-type"] == "global-delivery-status"
    assert "To: <ß@exämple.com>\r\n".encode() in report.content
    assert [part.get_content_type() for part in parts(message)] == [
        "text/plain",
        "message/global-delivery-status",
        "message/global",
    ]
    assert status_blocks(parts(message)[1])[1][0] == ("Final-Recipient", "utf-8; ü@exämple.org")


def test_a_report_to_ascii_needs_no_smtputf8() -> None:
    report = compose(notice(replace(BOUNCE, address="ü@example.org")))
    parse(report)
    assert (report.eight_bit, report.smtputf8) == (True, False)


@pytest.mark.parametrize("action", Action)
def test_each_action_has_a_usual_subject(action: Action) -> None:
    assert parse(compose(replace(notice(), action=action, subject="")))["Subject"]


def test_a_subject_beyond_ascii_is_encoded() -> None:
    subject = "Zustellung fehlgeschlagen: größte Mühe, " * 5 + "\U0001f4ec" * 20
    report = compose(replace(notice(), subject=subject))
    assert parse(report)["Subject"] == subject
    assert report.content.isascii()


def test_the_returned_message_cannot_end_its_part() -> None:
    trap = b"Subject: x\r\n\r\n--=_mqcd_0123456789ABCDE2_0--\r\n--=_mqcd_0123456789ABCDE2_1\r\n"
    message = parse(compose(notice(original=trap)))
    assert message.get_boundary() == "=_mqcd_0123456789ABCDE2_2"
    [returned] = parts(parts(message)[2])
    assert returned.get_content().splitlines()[0] == "--=_mqcd_0123456789ABCDE2_0--"


HOSTILE = st.text(st.sampled_from('a@.\r\n\0\t :;<>"-=\x7f\x85\u2028ü\U0001f4ec'), max_size=300)


@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE, st.binary(max_size=300))
def test_nothing_from_outside_adds_a_field_or_a_part(
    address: str, reply: str, remote: str, dsn: str, original: bytes
) -> None:
    envelope = replace(BOUNCE.envelope, dsn="ENVID=" + dsn)
    bounce = replace(
        BOUNCE, envelope=envelope, address=address, reply=reply, remote=remote, dsn="ORCPT=a;" + dsn
    )
    report = compose(replace(notice(bounce, original=original), to_address=address, subject=reply))
    head, _, rest = report.content.partition(b"\r\n\r\n")
    names = [line.partition(b":")[0] for line in head.split(b"\r\n") if not line.startswith(b" ")]
    assert [name.decode() for name in names] == [
        "Date",
        "From",
        "To",
        "Subject",
        "Message-ID",
        "Auto-Submitted",
        "MIME-Version",
        "Content-Type",
        "Content-Transfer-Encoding",
    ]
    mark = b"\r\n--=_mqcd_0123456789ABCDE2_0"
    sections = rest.split(mark)
    assert len(sections) == 4 + bool(notice(original=original).original)
    fields = sections[2].partition(b"\r\n\r\n")[2].split(b"\r\n")
    allowed = (b"Original-", b"Reporting-MTA", b"Arrival-Date", b"X-mqcd-SPID", b"Final-Recipient")
    more = (b"Action: failed", b"Status: 5.1.1", b"Remote-MTA: dns; ", b"Diagnostic-Code: smtp; 550")
    assert all(not field or field.startswith(allowed + more) or b"x-mqcd; 550" in field for field in fields)
    assert max(len(line) for line in report.content.split(b"\r\n")) <= 998


@pytest.mark.parametrize(
    ("dsn", "wanted"),
    [
        ("", True),
        ("ORCPT=rfc822;a@example.org", True),
        ("NOTIFY=SUCCESS,FAILURE", True),
        ("notify=failure", True),
        ("NOTIFY=NEVER", False),
        ("NOTIFY=SUCCESS,DELAY ORCPT=rfc822;a@example.org", False),
    ],
)
def test_senders_may_not_want_to_hear(dsn: str, wanted: bool) -> None:
    assert wants_failures(replace(BOUNCE, dsn=dsn)) is wanted


def test_dates_are_english_and_utc() -> None:
    assert format_date(0) == "Thu, 01 Jan 1970 00:00:00 +0000"
    assert format_date(1_795_186_996_447) == "Fri, 20 Nov 2026 15:03:16 +0000"


@pytest.mark.parametrize(("ms", "year"), [(-(1 << 60), "1970"), (1 << 48, "9999"), (1 << 80, "9999")])
def test_a_time_that_cannot_be_stops_no_report(ms: int, year: str) -> None:
    bounce = replace(BOUNCE, envelope=replace(BOUNCE.envelope, received=ms))
    late = replace(notice(bounce), action=Action.DELAYED, retry_until=ms)
    [fields, of_recipient] = status_blocks(parts(parse(compose(late)))[1])
    assert year in dict(fields)["Arrival-Date"]
    assert year in dict(of_recipient)["Will-Retry-Until"]


def test_the_last_attempt_stands_in_both_parts() -> None:
    at = RECEIVED + 60_000
    words = "no such user " + "x" * 700
    bounce = replace(BOUNCE, remote=f"mx.example.org rcpt {at}", reply=words)
    text, status, _ = parts(parse(compose(notice(bounce))))
    [_, fields] = status_blocks(status)
    assert ("Remote-MTA", "dns; mx.example.org") in fields
    assert ("Last-Attempt-Date", format_date(at)) in fields
    assert ("X-mqcd-Phase", "rcpt") in fields
    assert ("Diagnostic-Code", f"smtp; 550 5.1.1 {words}") in fields
    said = " ".join(text.get_content().split())
    assert f"in answer to RCPT TO: 550 5.1.1 {words}" in said


def test_an_attempt_that_met_nobody_quotes_nobody() -> None:
    bounce = replace(BOUNCE, remote=f" route {RECEIVED}", status="5.1.2", reply="no such domain")
    text, status, _ = parts(parse(compose(notice(bounce))))
    [_, fields] = status_blocks(status)
    assert not [name for name, _ in fields if name == "Remote-MTA"]
    assert ("Diagnostic-Code", "x-mqcd; 550 5.1.2 no such domain") in fields
    assert ": 550 5.1.2 no such domain" in text.get_content()
