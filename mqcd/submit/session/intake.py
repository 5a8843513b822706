"""From 354 to the reply to the final dot, or from the first BDAT to the last: one message into the store.

A message whose content is at most `inline_max` octets goes to the store whole, and so does one of any size
where a filter reads content (`handle_DATA`): it is in memory up to the commit. Any other goes as a `Stream`
that the store reads at its own pace: while it does not, the socket is not read. 250 is the reply only once
`enqueue` has returned. After any error the content, or its present chunk, is read to its end before the
reply, so that the session stays in step; only a disconnect, a stop or a time limit ends that.

Failures and replies: bare CR, NUL, bare LF where it is not normalised, a line longer than maxline, or two
keys 554 5.6.0; maxmsgsize 552 5.3.4; maxhops 554 5.4.6; a quota 450 4.7.1; StoreUnavailable 451 4.3.1; the
filter and Refused: their own reply; anything else 451 4.3.0, and the log has it.

A message with an idempotency key that was used before gets the reply of the first one (`session.keying`).

Settings read: maxmsgsize, maxhops, maxline, omitreceivedheader, submission, announcehost, inline_max,
tenant, and zones that go by headers.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mqcd.core.errors import ConnectFailed, StoreUnavailable
from mqcd.core.model import Envelope, Key, Submission
from mqcd.core.ports import Clock, MailTaker
from mqcd.core.queueing.spid import format_spid
from mqcd.core.smtp.marks import Marks, marks_of
from mqcd.core.smtp.reply import Refused, Reply
from mqcd.submit.esmtp.refusal import DoorRefused, Reason
from mqcd.submit.esmtp.replies import FAULT
from mqcd.submit.message.completing import missing_fields
from mqcd.submit.message.received import DateCache, local_header, protocol, received_header
from mqcd.submit.message.zoning import MAX_SECTION, Zoning, fields_of
from mqcd.submit.policy.load import Load
from mqcd.submit.policy.quotas import Use
from mqcd.submit.policy.rules import Rulebook
from mqcd.submit.session import keying
from mqcd.submit.session.desk import Desk
from mqcd.submit.session.dialogue import Dialogue
from mqcd.submit.session.stream import Abandoned, Source, Stream
from mqcd.submit.session.wire import Interrupted

if TYPE_CHECKING:
    from mqcd.submit.session.filtering import Filter

log = logging.getLogger(__name__)

_STORE = Reply(code=451, status="4.3.1", text="The queue cannot take mail now, try again later")
_HEADER_ROOM = 2048
"""Octets of inline_max that the added Received header may take."""


@dataclass(kw_only=True, slots=True)
class Intake:
    """Settings common to all messages of one door."""

    store: MailTaker
    clock: Clock
    book: Rulebook
    listener: str
    inline_max: int
    dates: DateCache
    desk: Desk
    load: Load
    zoning: Zoning = field(default_factory=lambda: Zoning(()))
    """Which zone a message's header chooses."""


class _Received(NamedTuple):
    """What was received for one message."""

    content: bytes | None
    """None = it is large and to be iterated."""
    reply: bytes
    """The filter's; b"" = the door's own."""
    key: Key | None


async def take_message(
    intake: Intake, dialogue: Dialogue, source: Source, filtering: Filter | None = None
) -> bytes:
    """Read one message's content and give it to the store; the reply's octets.

    The rules are those of the session, which are what it has announced: a reload applies to the next one.
    Raises ConnectFailed when the client leaves, Interrupted when the session is ended, Abandoned: nothing is
    kept of the message then. Any other failure is a reply.
    """
    settings = dialogue.rules.settings
    stream = Stream(source, settings.maxmsgsize, settings.maxhops, settings.maxline)
    try:
        return await _accept(intake, dialogue, stream, filtering)
    except (ConnectFailed, Interrupted, Abandoned):
        raise
    except Exception as error:
        refused = _explain(error, dialogue.session)
        await source.finish()
        dialogue.refuse(refused.reason, refused.reply)
        return refused.octets


async def _accept(intake: Intake, dialogue: Dialogue, stream: Stream, filtering: Filter | None) -> bytes:
    """Receive, prepare, commit: the message is nowhere until the last; the reply's octets.

    The filter comes first, because it may rewrite the message or discard it.
    """
    received = await _receive(intake, dialogue, stream, filtering)
    if received.reply and not dialogue.begun.recipients:
        # The filter has left no recipient, which it may where it gives a reply of its own.
        log.info("message discarded by the filter", extra={"session": dialogue.session})
        return received.reply
    with Use(dialogue.rules.quotas) as use:
        submission = await _prepare(intake, dialogue, stream, received.content, received.key, use)
        try:
            spid = await _commit(intake, dialogue, submission)
        except asyncio.CancelledError:
            # Cut off, which need not stop a message that has come whole: less may be sent than allowed, not
            # more.
            if stream.done:
                use.keep(_late_octets(submission, stream))
            raise
        if spid == submission.envelope.spid:
            # A repeat is no message: it has the SPID of the first, see `_commit`.
            use.keep(_late_octets(submission, stream))
    return received.reply or b"250 2.0.0 Ok: queued as %s\r\n" % format_spid(spid).encode()


async def _receive(intake: Intake, dialogue: Dialogue, stream: Stream, filtering: Filter | None) -> _Received:
    if filtering is not None and filtering.reads_content:
        key, whole = keying.of_whole(dialogue, await stream.begin(sys.maxsize) or b"")
        return _Received(*await filtering.message(whole), key)
    content = await stream.begin(max(intake.inline_max - _HEADER_ROOM, 0))
    if content is None:
        return _Received(None, b"", await keying.of_stream(dialogue, stream))
    key, content = keying.of_whole(dialogue, content)
    return _Received(content, b"", key)


async def _prepare(
    intake: Intake, dialogue: Dialogue, stream: Stream, content: bytes | None, key: Key | None, use: Use
) -> Submission:
    """What goes into the queue. Raises DoorRefused, and what a stream raises.

    In this order: the header section says zone, tenant and quotas; only a message that no quota refuses gets
    a SPID; what is put before the content names the SPID.
    """
    transaction, rules = dialogue.begun, dialogue.rules
    tenancy = rules.tenancy
    head = b""
    if intake.zoning or rules.settings.submission or tenancy.header:
        head = content if content is not None else await stream.head(MAX_SECTION)
    zone = ""
    if intake.zoning:
        sender, user = transaction.sender, dialogue.user
        zone = intake.zoning.choose(head, sender=sender, listener=intake.listener, user=user)
    named = fields_of(head, frozenset({tenancy.header})).get(tenancy.header, ()) if tenancy.header else ()
    _use_quotas(use, dialogue, named, content)
    now = intake.clock.now()
    spid = intake.store.reserve(len(transaction.recipients) > 1)
    added = b""
    if rules.settings.submission:
        made = f"{now}.{format_spid(spid)}@{rules.host}"
        added = missing_fields(head, date=intake.dates.text(now), message_id=made)
    before = _header(intake, dialogue, spid, now) + added
    marks = marks_of(content if content is not None else stream.first)
    if not marks.message_id and added:
        marks = marks._replace(message_id=marks_of(added).message_id)
    if content is None:
        stream.prepend(before)
    tenant = tenancy.name(dialogue.user, named)
    return Submission(
        envelope=_envelope(intake, dialogue, spid, received=now, zone=zone, tenant=tenant, marks=marks),
        recipients=tuple(transaction.recipients),
        content=stream if content is None else before + content,
        recipient_dsn=tuple(transaction.recipient_dsn) if any(transaction.recipient_dsn) else (),
        key=key,
    )


def _envelope(
    intake: Intake, dialogue: Dialogue, spid: int, *, received: int, zone: str, tenant: str, marks: Marks
) -> Envelope:
    transaction = dialogue.begun
    parameters = transaction.parameters
    return Envelope(
        spid=spid,
        sender=transaction.sender,
        received=received,
        body=parameters.body,
        smtputf8=parameters.smtputf8,
        zone=zone,
        listener=intake.listener,
        client=dialogue.client,
        user=dialogue.user,
        tls=dialogue.channel.tls,
        dsn=parameters.dsn,
        release=transaction.release,
        priority=transaction.priority,
        labels=marks.labels(tenant, dialogue.caller.hold),
        session=dialogue.session,
        message_id=marks.message_id,
    )


async def _commit(intake: Intake, dialogue: Dialogue, submission: Submission) -> int:
    """The SPID under which it is in the queue: that of the first message where it is a repeat.

    Mail from the maildrop: the SPID is written into the name of its file first, so that a restart sees
    whether it was queued.
    """
    if dialogue.caller.claim is not None:
        await dialogue.caller.claim(submission.envelope.spid)
    # Of a large one the client has still to send most: how long that takes says nothing about us.
    whole = isinstance(submission.content, bytes)
    if whole:
        intake.load.begin(dialogue)
    try:
        recipients = await intake.store.enqueue(submission)
    finally:
        if whole:
            intake.load.end(dialogue)
    spid = recipients[0].spid
    if spid != submission.envelope.spid:
        log.info("repeat of message %s", format_spid(spid), extra={"session": dialogue.session})
    return spid


def _use_quotas(use: Use, dialogue: Dialogue, named: Sequence[str], content: bytes | None) -> None:
    """Count the message; octets that are still to come count once they are there. Raises DoorRefused."""
    recipients, octets = len(dialogue.begun.recipients), len(content) if content is not None else 0
    refused = use.begin(dialogue.client, dialogue.user, named, recipients, octets)
    if refused is not None:
        raise DoorRefused(*refused)


def _late_octets(submission: Submission, stream: Stream) -> int:
    """Those of a large message, whose size is known only once it has come."""
    return stream.size if submission.content is stream else 0


def _header(intake: Intake, dialogue: Dialogue, spid: int, now: int) -> bytes:
    """The Received header."""
    rules, transaction = dialogue.rules, dialogue.begun
    if rules.settings.omitreceivedheader:
        return b""
    recipients = transaction.recipients
    recipient = recipients[0] if len(recipients) == 1 else ""
    if dialogue.caller.user:
        return local_header(
            user=dialogue.caller.user,
            host=rules.host,
            spid=spid,
            recipient=recipient,
            date=intake.dates.text(now),
        )
    return received_header(
        helo=dialogue.helo,
        client=dialogue.client,
        host=rules.host,
        protocol=protocol(
            dialogue.esmtp,
            transaction.parameters.smtputf8,
            tls=bool(dialogue.channel.tls),
            user=bool(dialogue.user),
            lmtp=rules.lmtp,
        ),
        spid=spid,
        recipient=recipient,
        date=intake.dates.text(now),
    )


def _explain(error: Exception, session: str) -> DoorRefused:
    """Reason and reply for a message that was not taken."""
    if isinstance(error, DoorRefused):
        return error
    if isinstance(error, Refused):
        return DoorRefused(Reason.STORE, error.reply)
    if isinstance(error, StoreUnavailable):
        log.warning("message not taken, the store failed: %s", error, extra={"session": session})
        return DoorRefused(Reason.STORE, _STORE)
    log.error("message not taken because of a fault", exc_info=error, extra={"session": session})
    return DoorRefused(Reason.FAULT, FAULT)
