"""The transition of a recipient record by a verdict: one rule for every store. Pure.

It returns the record that a claimed recipient becomes, or None when the recipient leaves the queue. No store
decides this itself, so all treat a partial delivery alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from mqcd.core.events import MIGRATED, Verb
from mqcd.core.model import (
    MAX_LAST_WORDS,
    MAX_STORED_REPLY,
    Action,
    Amended,
    Area,
    Attempt,
    Attempted,
    Batch,
    Bounced,
    Deferred,
    Delivered,
    Discarded,
    EndOfBounce,
    Expired,
    NotDelivered,
    Phase,
    Purged,
    PutOff,
    Recipient,
    Reported,
    Verdict,
)
from mqcd.core.queueing.amendment import BOUNCE_CODE, BOUNCE_STATUS, amended_by, batch_of, purged, spent
from mqcd.core.queueing.holding import Holding, HoldMode
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value

_TRIED = frozenset((Area.INCOMING, Area.DEFERRED, Area.HELD))
"""Areas of what can be delivered."""


def after(recipient: Recipient, verdict: Verdict) -> Recipient | None:
    """The record that `verdict` makes of `recipient`; None when it has left the queue.

    A report that fails ends at once, without a report (RFC 5321, 4.5.5 and 6.1). Raises
    ValueError when the verdict cannot come in the recipient's area: a bounce is not attempted, what has
    not failed cannot be reported, and a batch changes only what it applies to (see `queueing.amendment`).
    """
    if type(verdict) is Delivered and recipient.area in _TRIED:
        # What becomes of most mail.
        return None
    if isinstance(verdict, Amended):
        return amended_by(recipient, (*verdict.earlier, verdict.batch))
    if isinstance(verdict, Purged):
        return purged(recipient)
    ends_bounce = isinstance(verdict, EndOfBounce)
    if ends_bounce is not (recipient.area is Area.BOUNCES) or recipient.area is Area.REMOVED:
        name = type(verdict).__name__
        raise ValueError(f"no verdict {name} for recipient {recipient.key} in area {recipient.area}")
    match verdict:
        case Deferred():
            area = Area.HELD if verdict.held else Area.DEFERRED
            deferred = _attempted(recipient, area, verdict.due, verdict)
            return replace(deferred, warned=True) if verdict.warning else deferred
        case Bounced() | Expired() if not recipient.is_report:
            return _attempted(recipient, Area.BOUNCES, 0, verdict)
        case Bounced() | Expired() | Delivered() | Reported() | Discarded():
            return None


def end_of(recipient: Recipient) -> Bounced | Amended | None:
    """The verdict that says of mail from elsewhere how it has ended; None for mail that has not."""
    if recipient.area is Area.REMOVED:
        name = batch_of(recipient) or MIGRATED
        return Amended(batch=Batch(id=name, action=Action.REMOVE, at=0, by=MIGRATED, until=recipient.due))
    if recipient.area is not Area.BOUNCES:
        return None
    reply = Reply(code=recipient.code, status=recipient.status, text=recipient.reply)
    host = last_attempt(recipient).host
    return Bounced(reply=reply, attempt=Attempt(destination="", phase=Phase.RCPT, remote_host=host))


def ended_as(recipient: Recipient) -> Verb | None:
    """The end that a record in area bounces or removed has had; None in other areas."""
    if recipient.area is Area.REMOVED:
        return Verb.REMOVED
    if recipient.area is not Area.BOUNCES:
        return None
    if (recipient.code, recipient.status, recipient.remote) == (BOUNCE_CODE, BOUNCE_STATUS, ""):
        return Verb.REMOVED
    if end := last_attempt(recipient).end:
        return end
    # Of mail from elsewhere only the reply is known.
    return Verb.BOUNCED if recipient.code // 100 == 5 else Verb.EXPIRED


def not_later(verdict: Verdict, latest: int) -> Verdict:
    """The verdict with a due time of `latest` (ms) at most."""
    if isinstance(verdict, PutOff):
        return replace(verdict, due=latest) if verdict.due > latest and not verdict.held else verdict
    if not isinstance(verdict, Amended):
        return verdict
    earlier = tuple(_sooner(each, latest) for each in verdict.earlier)
    return Amended(batch=_sooner(verdict.batch, latest), earlier=earlier)


def _sooner(batch: Batch, latest: int) -> Batch:
    match batch.action:
        case Action.RESCHEDULE:
            return replace(batch, until=min(batch.until, latest))
        case Action.RELEASE:
            return replace(batch, at=min(batch.at, latest))
        case Action.HOLD | Action.REMOVE | Action.BOUNCE | Action.REDIRECT | Action.RETRY | Action.UNDO:
            # A retry comes no later than the record says.
            return batch
        case _:
            assert_never(batch.action)


def parked(recipient: Recipient, until: int) -> Recipient:
    """The record given back untried, due at `until`, ms (0 = at once).

    New mail that has to wait rests with the deferred, so that the area of a record is where it lies and
    figures and listings agree; it stays untried. So does held mail that was let go and has to wait for its
    turn; without a time it goes back to where it was held. A bounce, and what was removed, stays as it is.
    """
    if recipient.area in (Area.BOUNCES, Area.REMOVED) or (recipient.area is Area.HELD and not until):
        return recipient
    waits = until and recipient.area in (Area.INCOMING, Area.HELD)
    return replace(recipient, area=Area.DEFERRED if waits else recipient.area, due=until)


def arrived(recipient: Recipient, now: int, holding: Holding) -> Recipient:
    """The record of new mail: mail to be released later (RFC 4865) waits as if it had been given back, that
    for a domain to be held, or to be collected by ATRN, is held; so is what was given to be held."""
    if recipient.envelope.hold:
        return replace(recipient, area=Area.HELD)
    mode = holding.mode(recipient.domain) if holding else None
    if mode is HoldMode.HOLD:
        return replace(recipient, area=Area.HELD)
    if mode is HoldMode.ATRN:
        return replace(recipient, area=Area.HELD, due=recipient.envelope.received + holding.maxtime)
    release = recipient.envelope.release
    return parked(recipient, release) if release > now else recipient


def unknown(recipient: Recipient, schedule: RetrySchedule, now: int) -> Recipient:
    """The record after a crash at `now` (ms) or before hid the outcome of an attempt that had begun.

    The attempt counts as one that has ended. The next one may be a duplicate, so it comes at once only
    the first time (see `RetrySchedule.after_unknown`). What was held rests for its domain again.
    """
    attempts, unknowns = recipient.attempts + 1, recipient.unknowns + 1
    counted = replace(recipient, attempts=attempts, unknowns=unknowns, amended=spent(recipient))
    if recipient.area is Area.HELD:
        return counted
    return replace(counted, area=Area.DEFERRED, due=schedule.after_unknown(counted, now))


def stored_text(reply: Reply, limit: int = MAX_STORED_REPLY) -> str:
    """As much of a reply's text as a record keeps: `limit` octets of UTF-8, no half character."""
    if len(reply.text) * 4 <= limit:
        return reply.text
    return reply.text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


_ENDS = {str(verb): verb for verb in (Verb.BOUNCED, Verb.EXPIRED)}
_END_WORDS: Mapping[type[Verdict], str] = {Bounced: f" {Verb.BOUNCED}", Expired: f" {Verb.EXPIRED}"}
"""The code of the last reply does not say it: rules for replies defer by 5yz and bounce by 4yz."""


@value(kw_only=False)
class LastAttempt:
    """Where and when a recipient failed for good."""

    host: str
    """Name of the host that gave the last reply; "" when it was ourselves."""
    phase: str = ""
    """A word of `Phase`; "" = not known."""
    at: int = 0
    """When it ended, ms; 0 = not known."""
    end: Verb | None = None
    """Whether it was refused or too old; None = not known."""


def last_attempt(recipient: Recipient) -> LastAttempt:
    """What the record of a bounce holds of its last attempt; of any other record only the host is known."""
    words = recipient.remote.split(" ")
    if len(words) in (3, 4) and words[2].isdecimal():
        return LastAttempt(words[0], words[1], int(words[2]), _ENDS.get(words[-1]))
    return LastAttempt(recipient.remote)


def with_last_words(recipient: Recipient, verdict: Attempted) -> Recipient:
    """The recipient with what the attempt's last reply said, as a report quotes it; this server's words name
    the host that they are about."""
    attempt, reply = verdict.attempt, verdict.reply
    if reply.own and attempt.remote_host not in reply.text:
        reply = replace(reply, text=f"{reply.text} ({attempt.remote_host})")
    return replace(
        recipient,
        code=reply.code,
        status=reply.status,
        reply=stored_text(reply, MAX_LAST_WORDS),
        remote=f"{speaker(verdict)} {attempt.phase} {attempt.at}{_END_WORDS.get(type(verdict), '')}",
    )


def _attempted(recipient: Recipient, area: Area, due: int, verdict: NotDelivered) -> Recipient:
    attempts = recipient.attempts + 1
    if area is Area.BOUNCES:
        ended = replace(recipient, area=area, due=due, attempts=attempts, amended="")
        return with_last_words(ended, verdict)
    left = spent(recipient) if recipient.amended else ""
    counted = replace(recipient, area=area, due=due, attempts=attempts, amended=left)
    return replace(
        counted,
        code=verdict.reply.code,
        status=verdict.reply.status,
        reply=stored_text(verdict.reply),
        remote=speaker(verdict),
    )


def speaker(verdict: Attempted) -> str:
    """The host whose word the last reply is; "" where the words are this server's."""
    ours = verdict.reply.own or verdict.attempt.phase in (Phase.ROUTE, Phase.CONNECT)
    return "" if ours else verdict.attempt.remote_host
