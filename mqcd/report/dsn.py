"""The text of a delivery status notification: a multipart/report (RFC 6522, 3464, 6533). Pure.

`compose` takes recipients of one message that share their fate (bounced, late, handed on) and gives the whole
report, CRLF, no line above 998 octets. What comes from outside (addresses, replies, host names, the message
itself) cannot add a header field, a status field or a MIME part. It never fails: what is missing is left out,
and the tables `_FATES` and `_SUBJECTS` have each Action.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime
from email.header import Header
from email.utils import format_datetime
from enum import Enum

from mqcd.core.events import Verb, format_time
from mqcd.core.model import Recipient
from mqcd.core.queueing.spid import format_spid
from mqcd.core.queueing.transition import ended_as, last_attempt
from mqcd.core.smtp.dsn import notify_of, parameters
from mqcd.core.smtp.reply import clean
from mqcd.core.value import value
from mqcd.report.original import Excerpt

PRODUCT = "mqcd"
_MAX_FIELD = 900
"""Octets of one field's value; far above what an address, a host name or a stored reply takes."""
_MOST_NAMED = 100
"""Recipients that the text for people names; the part for machines names all."""
_TOO_OLD = "4.4.7"
"""Delivery time expired (RFC 3463, 3.5)."""


class Action(Enum):
    """The recipients' fate (RFC 3464, 2.3.3)."""

    FAILED = "failed"
    DELAYED = "delayed"
    """Not delivered yet, and tried on."""
    RELAYED = "relayed"
    """Handed to a next hop that does not report what becomes of them."""
    DELIVERED = "delivered"
    """Handed to the server of their mailboxes."""


@value
class Notice:
    """The content of a report."""

    spid: int
    """The report's own SPID."""
    date: int
    """When it is made, ms."""
    reporting_mta: str
    """Our host name."""
    from_address: str
    to_address: str
    action: Action = Action.FAILED
    subject: str
    """"" = the usual one for the action."""
    introduction: str
    """Text for people, tokens %PRODNAME% and %REPMTA%; "" = the usual text."""
    recipients: Sequence[Recipient]
    """Of one message, at least one. Their records hold the last words, as those in area bounces do; others
    get them by `with_last_words`."""
    retry_until: int = 0
    """Until when those are tried that are delayed, ms."""
    original: Excerpt | None
    """What is returned of the message; None = nothing."""


@value
class Report:
    """A report as it goes into the queue."""

    content: bytes
    eight_bit: bool
    """It needs 8BITMIME (RFC 6152)."""
    smtputf8: bool
    """Its own header has addresses beyond ASCII: it needs SMTPUTF8 (RFC 6531)."""


def compose(notice: Notice) -> Report:
    """The report on `notice`."""
    people = _text_part(notice)
    kind, status = _status_part(notice)
    parts = [people, status]
    if notice.original is not None and notice.original.octets:
        parts.append(_original_part(notice, notice.original))
    boundary = _boundary(notice.spid, parts)
    eight_bit = not all(part.isascii() for part in parts)
    header = _header(notice, kind, boundary, eight_bit)
    # The line end before a boundary belongs to the boundary (RFC 2046, 5.1.1), so parts keep their own.
    mark = f"\r\n--{boundary}".encode()
    body = b"".join(mark + b"\r\n" + part for part in parts)
    preamble = b"\r\nThis is a MIME-encapsulated message.\r\n"
    return Report(
        content=header + preamble + body + mark + b"--\r\n",
        eight_bit=eight_bit or not header.isascii(),
        smtputf8=not header.isascii(),
    )


def wants_failures(recipient: Recipient) -> bool:
    """Whether the sender wants failures reported (NOTIFY, RFC 3461, 4.1); the default is yes."""
    return "FAILURE" in notify_of(recipient.dsn)


def format_date(ms: int) -> str:
    """A date as header fields carry it (RFC 5322, 3.3), in UTC. One that cannot be is the nearest that can:
    a record's time of acceptance has no bounds."""
    return format_datetime(datetime.fromisoformat(format_time(ms)))


# ---------------------------------------------------------------- header


def _header(notice: Notice, kind: str, boundary: str, eight_bit: bool) -> bytes:
    spids = f"{format_spid(notice.spid)}.{format_spid(notice.recipients[0].spid)}"
    lines = [
        f"Date: {format_date(notice.date)}",
        f"From: {_one_line(notice.from_address)}",
        f"To: <{_one_line(notice.to_address)}>",
        f"Subject: {_unstructured(notice.subject or _SUBJECTS[notice.action])}",
        f"Message-ID: <{spids}@{_one_line(notice.reporting_mta)}>",
        "Auto-Submitted: auto-replied",
        "MIME-Version: 1.0",
        f'Content-Type: multipart/report; report-type={kind};\r\n boundary="{boundary}"',
        f"Content-Transfer-Encoding: {'8bit' if eight_bit else '7bit'}",
    ]
    return _lines(lines)


def _unstructured(text: str) -> str:
    """Text for a header field: as it is when ASCII, else in encoded words (RFC 2047)."""
    text = _one_line(text)
    if text.isascii():
        return text
    known = text.encode("utf-8", "replace").decode()
    return Header(known, "utf-8", header_name="Subject").encode(linesep="\r\n")


def _boundary(spid: int, parts: Sequence[bytes]) -> str:
    """A boundary that no part contains, even if the returned message is crafted."""
    number = 0
    while True:
        boundary = f"=_{PRODUCT}_{format_spid(spid)}_{number}"
        if not any(boundary.encode() in part for part in parts):
            return boundary
        number += 1


# ---------------------------------------------------------------- for people


def _text_part(notice: Notice) -> bytes:
    text = notice.introduction.strip() or _usual_introduction(notice)
    text = text.replace("%PRODNAME%", PRODUCT).replace("%REPMTA%", notice.reporting_mta)
    paragraphs = [*_wrapped(text, ""), ""]
    for recipient in notice.recipients[:_MOST_NAMED]:
        why = _reason(recipient) if notice.action is Action.FAILED else _said(recipient)
        paragraphs += [f"<{_one_line(recipient.address)}>", *_wrapped(why, "    "), ""]
    if (more := len(notice.recipients) - _MOST_NAMED) > 0:
        paragraphs += [f"and {more} more, which the delivery report below names.", ""]
    if notice.original is not None and notice.original.octets:
        paragraphs += [f"{_returned(notice.original, 'your')} is attached.", ""]
    body = _lines(paragraphs)
    charset = "us-ascii" if body.isascii() else "utf-8"
    return _part(f"text/plain; charset={charset}", "Notification", body)


def _usual_introduction(notice: Notice) -> str:
    whom = "the recipient below" if len(notice.recipients) == 1 else "the recipients below"
    fate = _FATES[notice.action].format(whom=whom, until=format_date(notice.retry_until))
    return f"This is the mail server %REPMTA%.\n\n{fate}"


_FATES = {
    Action.DELAYED: "Your message could not be delivered yet to {whom}. You need not do anything: "
    "it will be tried again until {until}.",
    Action.FAILED: "Your message could not be delivered to {whom}, and it will not be tried again.",
    Action.RELAYED: "Your message was handed to the next server for {whom}. That server does not report what "
    "becomes of it: this is the last report unless it fails.",
    Action.DELIVERED: "Your message was delivered to {whom}.",
}
_SUBJECTS = {
    Action.FAILED: "Delivery Failure Report",
    Action.DELAYED: "Mail Delay Report",
    Action.RELAYED: "Mail Relay Report",
    Action.DELIVERED: "Mail Delivery Report",
}
_ASKED = {
    "greeting": "to our connection",
    "ehlo": "to EHLO",
    "tls": "to STARTTLS",
    "auth": "to our login",
    "mail": "to MAIL FROM",
    "rcpt": "to RCPT TO",
    "data": "to DATA",
    "dot": "to the message",
}
"""Phases in which a server has the last word, and what its word was the answer to."""


def _said(recipient: Recipient) -> str:
    said = _one_line(" ".join(filter(None, (str(recipient.code or ""), recipient.status, recipient.reply))))
    last = last_attempt(recipient)
    where = f", in answer {_ASKED[last.phase]}" if last.phase in _ASKED else ""
    who = f"The server {_one_line(last.host)} said{where}" if last.host else "The reason"
    return f"{who}: {said}" if said else ""


def _reason(bounce: Recipient) -> str:
    """Why it failed: `_said`, and whether it has become too old."""
    why = _said(bounce)
    if ended_as(bounce) is not Verb.EXPIRED:
        return why
    if bounce.status == _TOO_OLD and not last_attempt(bounce).host:
        # It was not tried at the end, and perhaps never.
        return f"Given up for its age. {why}"
    tries = "one attempt" if bounce.attempts == 1 else f"{bounce.attempts} attempts"
    return f"Given up for its age after {tries}. {why}".strip()


def _wrapped(text: str, indent: str) -> list[str]:
    """The text's own lines, each wrapped; a word longer than a line stays whole."""
    wrapper = textwrap.TextWrapper(
        76,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines: list[str] = []
    for line in text.splitlines():
        pieces = wrapper.wrap(clean(line, len(line)))
        lines += [indent + _one_line(piece) for piece in pieces] or [""]
    return lines


# ---------------------------------------------------------------- for machines


def _status_part(notice: Notice) -> tuple[str, bytes]:
    """The subtype of the part for machines, which is the report's type (RFC 6522, 3), and the part."""
    blocks = [
        _message_fields(notice),
        *(_recipient_fields(each, notice) for each in notice.recipients),
    ]
    body = b"\r\n".join(_lines(block) for block in blocks)
    # Addresses beyond ASCII stand as they are only in the type made for them (RFC 6533, 4).
    kind = "delivery-status" if body.isascii() else "global-delivery-status"
    return kind, _part(f"message/{kind}", "Delivery report", body)


def _message_fields(notice: Notice) -> list[str]:
    envelope = notice.recipients[0].envelope
    fields = [f"Reporting-MTA: dns; {_one_line(notice.reporting_mta)}"]
    envid = parameters(envelope.dsn).get("ENVID", "")
    if envid:
        fields.append(f"Original-Envelope-Id: {_one_line(_from_xtext(envid))}")
    fields.append(f"Arrival-Date: {format_date(envelope.received)}")
    fields.append(f"X-{PRODUCT}-SPID: {format_spid(envelope.spid)}")
    return fields


def _recipient_fields(recipient: Recipient, notice: Notice) -> list[str]:
    fields = []
    kind, _, original = parameters(recipient.dsn).get("ORCPT", "").partition(";")
    if original:
        fields.append(f"Original-Recipient: {_one_line(kind)[:40]}; {_one_line(_from_xtext(original))}")
    kind = "rfc822" if recipient.address.isascii() else "utf-8"
    fields += [f"Final-Recipient: {kind}; {_one_line(recipient.address)}", f"Action: {notice.action.value}"]
    fields.append(f"Status: {_one_line(recipient.status) or _status_of(recipient.code)}")
    last = last_attempt(recipient)
    if last.host:
        fields.append(f"Remote-MTA: dns; {_one_line(last.host)}")
    if recipient.code:
        said = " ".join(filter(None, (str(recipient.code), recipient.status, recipient.reply)))
        kind = "smtp" if last.host else f"x-{PRODUCT}"
        fields.append(f"Diagnostic-Code: {kind}; {_one_line(said)}")
    if last.at:
        fields.append(f"Last-Attempt-Date: {format_date(last.at)}")
    if notice.action is Action.DELAYED:
        fields.append(f"Will-Retry-Until: {format_date(notice.retry_until)}")
    if last.phase:
        fields.append(f"X-{PRODUCT}-Phase: {_one_line(last.phase)}")
    return fields


def _status_of(code: int) -> str:
    """The enhanced status where the next hop sent none (RFC 3463, 2)."""
    return f"{code // 100}.0.0" if code else _TOO_OLD


def _from_xtext(text: str) -> str:
    """What xtext (RFC 3461, 4) stands for; what is not xtext stays as it is."""
    head, *rest = text.split("+")
    octets = head.encode()
    for piece in rest:
        digits = piece[:2]
        if len(digits) < 2 or digits.strip("0123456789ABCDEFabcdef"):
            return text
        octets += bytes([int(digits, 16)]) + piece[2:].encode()
    return octets.decode("utf-8", "replace")


def _original_part(notice: Notice, original: Excerpt) -> bytes:
    envelope = notice.recipients[0].envelope
    kinds = ("message/rfc822", "text/rfc822-headers")
    if envelope.smtputf8 and not original.header_section.isascii():
        kinds = ("message/global", "message/global-headers")
    return _part(kinds[original.headers_only], _returned(original, "the"), original.octets)


def _returned(original: Excerpt, whose: str) -> str:
    """Describes the returned part of the message, as text."""
    if original.headers_only:
        return f"The header of {whose} message"
    return f"The beginning of {whose} message" if original.cut else f"{whose} message".capitalize()


# ---------------------------------------------------------------- pieces


def _part(kind: str, description: str, body: bytes) -> bytes:
    encoding = "7bit" if body.isascii() else "8bit"
    header = [
        f"Content-Type: {kind}",
        f"Content-Description: {description}",
        f"Content-Transfer-Encoding: {encoding}",
    ]
    return _lines(header) + b"\r\n" + body


def _one_line(text: str) -> str:
    """The text without control characters, at most _MAX_FIELD octets of UTF-8."""
    text = clean(text, _MAX_FIELD)
    return text.encode("utf-8", "replace")[:_MAX_FIELD].decode("utf-8", "ignore")


def _lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "replace")
