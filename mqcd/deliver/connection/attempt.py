"""One message to some of its recipients over a link that is ready: between store and SMTP client.

The claimed recipients of a job are the caller's until `transact` hands their verdicts to `Settling`:

| the attempt ends | `End` | the recipients are | `job.begun` |
|---|---|---|---|
| with replies to all | KEPT, OVER | settled, each by its reply | yes |
| with the connection, before the final dot is out | BROKEN | settled: deferred | yes |
| with the connection, behind it | BROKEN | settled: deferred, possibly delivered | yes |
| as the server had closed the kept connection | STALE | the caller's, untried | if it was recorded |
| as the store takes no begin | STORE | the caller's, untried | no |
| as the store is unavailable for the content | STORE | the caller's, untried | if it was recorded |
| as the content cannot be read | CONTENT | the caller's, untried | if it was recorded |
| cancelled, or by a fault | raises | the caller's, see `Link.content_ended` | if it was recorded |

STALE: on a kept connection the server has answered nothing of this transaction (`SmtpClient.answered`), or
MAIL by 421.

Guarantees: the store has recorded that the attempt has begun before any content goes out, and before a
verdict is handed in; there is one settle for the transaction. Content is read when the server asks for it,
never more than one chunk at a time, and the store's sync runs while the server thinks about the envelope.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum

from mqcd.core.content import MemoryContent
from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.core.model import Attempt, Body, Phase, Recipient
from mqcd.core.ports import Clock, Content, QueueStore
from mqcd.core.queueing.spid import format_spid
from mqcd.deliver.connection.link import CHUNK, GONE, Link
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.settling import Settling
from mqcd.deliver.smtp.client import SmtpClient
from mqcd.deliver.smtp.exchange import Transaction
from mqcd.deliver.smtp.states import State

_log = logging.getLogger("mqcd.deliver")


class End(Enum):
    """How a transaction left the connection."""

    KEPT = "kept"
    """Ready for more."""
    OVER = "over"
    """The transaction ended, and so did the session."""
    BROKEN = "broken"
    """The connection broke; the verdicts are settled."""
    STALE = "stale"
    """The server had closed the kept connection: no recipient was tried."""
    STORE = "store"
    """The store failed: no recipient was tried, the connection is closed."""
    CONTENT = "content"
    """The content could not be read: no recipient was tried, the connection is closed."""


async def transact(
    store: QueueStore, clock: Clock, settling: Settling, link: Link, job: Job, started: int, *, last: bool
) -> End:
    """Try a job, at `started` (monotonic). With `last` the session ends after it."""
    smtp = link.smtp
    if link.transactions and not link.quiet and await link.receive() is State.ENDED:
        return End.STALE
    begun: asyncio.Future[None] | None = None
    try:
        if not job.begun:
            begun = asyncio.ensure_future(store.begin(job.recipients, job.hop.destination.name))
        await _send(store, link, job, started, begun, last=last)
    except StoreUnavailable as error:
        link.close()
        return _untried(settling, link, job, error)
    finally:
        if begun is not None:
            job.begun = _is_recorded(begun)
    if link.transactions and _stale(smtp):
        return End.STALE
    link.transactions += 1
    took, now = clock.monotonic() - started, clock.now()
    ended_in = _attempts(link, job, took, now)
    settling.settle_each(job, smtp.outcomes, ended_in, now, dsn="DSN" in smtp.extensions)
    link.rest()
    if smtp.state is State.ENDED:
        return End.OVER if smtp.answered and not _broken(smtp) else End.BROKEN
    return End.KEPT if smtp.state is State.READY else End.OVER


async def _send(
    store: QueueStore, link: Link, job: Job, started: int, begun: asyncio.Future[None] | None, *, last: bool
) -> None:
    """Until every recipient has its outcome. Raises StoreUnavailable."""
    # What was in memory is kept for one attempt.
    octets, job.content = job.content, None
    content = await store.content(job.recipients[0]) if octets is None else MemoryContent(octets)
    try:
        carried = await _declared(store, link, job)
        link.smtp.begin(_transaction(link, job, content, *carried, last=last))
        link.start(len(job.recipients), content.size, started)
        await _converse(link, content, begun)
    finally:
        content.close()


def _untried(settling: Settling, link: Link, job: Job, error: StoreUnavailable) -> End:
    """The store failed before the end of the content was sent."""
    if not isinstance(error, ContentUnavailable):
        settling.unavailable(error)
        return End.STORE
    name = format_spid(job.envelope.spid)
    about = {"spid": name, "session": link.session}
    _log.error("content of message %s unavailable: %s", name, error, extra=about)
    return End.CONTENT


async def _converse(link: Link, content: Content, begun: asyncio.Future[None] | None) -> None:
    """Commands, content, and their replies; no content before the store has the begin."""
    smtp = link.smtp
    left = content.size
    while not smtp.decided:
        if smtp.state is not State.CONTENT:
            await link.receive()
            continue
        if begun is not None:
            if not begun.done():
                # It is the store that is waited for, not the peer. `send_content` sets the next deadline.
                link.deadline = 0
            # Raises also where the store had failed before the server asked for the content.
            await _recorded(begun)
            begun = None
        chunk = await content.read(CHUNK)
        left -= len(chunk)
        if left and not chunk:
            raise ContentUnavailable(f"content ends {left} octets early")
        if not link.quiet and await link.receive() is not State.CONTENT:
            continue
        link.send_content(chunk, not left, content.size)
        if left:
            await link.drain()
            # Reading and sending may not have waited: let other tasks run.
            await asyncio.sleep(0)
    if begun is not None:
        await _recorded(begun)


async def _recorded(begun: asyncio.Future[None]) -> None:
    """Wait for the store. A cancelled attempt must not cancel the store's work."""
    await (begun if begun.done() else asyncio.shield(begun))


def _is_recorded(begun: asyncio.Future[None]) -> bool:
    """Whether the store has recorded the begin by now."""
    if not begun.done():
        # Nobody waits for it any more: asyncio would log a failure as lost.
        begun.add_done_callback(_is_recorded)
        return False
    return not begun.cancelled() and begun.exception() is None


async def _declared(store: QueueStore, link: Link, job: Job) -> tuple[bool, bool]:
    """Whether the transaction needs 8BITMIME and SMTPUTF8. Content is read only when the hop lacks what was
    declared."""
    first, envelope = job.recipients[0], job.envelope
    offered = link.smtp.extensions
    eight, smtputf8 = envelope.body is Body.EIGHT, envelope.smtputf8
    if eight and "8BITMIME" not in offered:
        eight = await _beyond_ascii(store, first, headers_only=False)
    if smtputf8 and "SMTPUTF8" not in offered:
        # Recipients that need it are refused one by one.
        smtputf8 = not envelope.sender.isascii() or await _beyond_ascii(store, first, headers_only=True)
    return eight, smtputf8


def _transaction(
    link: Link, job: Job, content: Content, eight: bool, smtputf8: bool, *, last: bool
) -> Transaction:
    envelope = job.envelope
    return Transaction(
        sender=envelope.sender,
        recipients=tuple([recipient.address for recipient in job.recipients]),
        size=content.size,
        eight=eight,
        smtputf8=smtputf8,
        dsn=envelope.dsn,
        priority=envelope.priority,
        recipient_dsn=_recipient_dsn(job.recipients) if "DSN" in link.smtp.extensions else (),
        quit_after=last and link.sends_quit,
    )


def _recipient_dsn(recipients: Sequence[Recipient]) -> tuple[str, ...]:
    words = tuple([recipient.dsn for recipient in recipients])
    return words if any(words) else ()


async def _beyond_ascii(store: QueueStore, recipient: Recipient, *, headers_only: bool) -> bool:
    """Whether the content, or its header section, has octets beyond ASCII."""
    content = await store.content(recipient)
    tail = b""
    try:
        while chunk := await content.read(CHUNK):
            joined = tail + chunk
            end = joined.find(b"\r\n\r\n") if headers_only else -1
            if not (joined if end < 0 else joined[:end]).isascii():
                return True
            if end >= 0:
                return False
            tail = joined[-3:]
            await asyncio.sleep(0)
        return False
    finally:
        content.close()


def _attempts(link: Link, job: Job, took: int, now: int) -> Callable[[Phase], Attempt]:
    """The details of the attempt at a job, by the phase in which it ended; `now` is wall time."""
    attempts: dict[Phase, Attempt] = {}

    def ended_in(phase: Phase) -> Attempt:
        attempt = attempts.get(phase)
        if attempt is None:
            attempt = attempts[phase] = link.attempt(job.hop, phase, took, now)
        return attempt

    return ended_in


def _stale(smtp: SmtpClient) -> bool:
    """Whether the session ended before the server answered the transaction."""
    if smtp.state is not State.ENDED:
        return False
    closing = smtp.end is not None and smtp.end.code == 421 and smtp.phase is Phase.MAIL
    return not smtp.answered or closing


def _broken(smtp: SmtpClient) -> bool:
    """Whether the server closed the connection or broke the protocol, without a reply that ends the
    session."""
    return smtp.end is None or smtp.end.status in GONE
