"""The lines of an audit log. Pure.

logfmt, every field in every line and always in the same order; "" where there is nothing to say. Names
are those of the event files. No text of a peer can break a line (`lines.text`).
"""

from __future__ import annotations

from mqcd.core.events import Verb, format_time
from mqcd.core.model import Bounced, Delivered, Expired, Recipient
from mqcd.core.queueing.transition import last_attempt
from mqcd.core.smtp.reply import Reply
from mqcd.ops.log.lines import text


def delivery(at: int, recipient: Recipient, verdict: Delivered) -> str:
    """A recipient that the next hop has taken at `at`, ms."""
    attempt = verdict.attempt
    return (
        f"{_head(at, Verb.DELIVERED, recipient, recipient.attempts + 1)}"
        f" destination={text(attempt.destination)} zone={text(attempt.zone)}"
        f" remote_host={text(attempt.remote_host)} remote_addr={text(attempt.remote_addr)}"
        f" tls={text(attempt.tls)} {_said(verdict.reply)}"
    )


def failure(at: int, recipient: Recipient, *, report: str = "", reason: str = "") -> str:
    """A bounce that ends at `at`, ms: with the report on it, or the reason why there is none.

    Its record does not say whether it was refused or too old; a last reply that was not for good does.
    """
    reply = Reply(code=recipient.code, status=recipient.status, text=recipient.reply)
    verb = Verb.BOUNCED if reply.permanent else Verb.EXPIRED
    last = last_attempt(recipient)
    return (
        f"{_head(at, verb, recipient, recipient.attempts)}"
        f" remote_host={text(last.host)} phase={text(last.phase)} {_said(reply)}"
        f" report={text(report)} reason={text(reason)}"
    )


def failed_report(at: int, recipient: Recipient, verdict: Bounced | Expired) -> str:
    """Mail with the null sender that failed: it ends with its verdict, without a report."""
    verb = Verb.BOUNCED if isinstance(verdict, Bounced) else Verb.EXPIRED
    attempt = verdict.attempt
    return (
        f"{_head(at, verb, recipient, recipient.attempts + 1)}"
        f" remote_host={text(attempt.remote_host)} phase={attempt.phase.value} {_said(verdict.reply)}"
        f' report="" reason="null sender"'
    )


def _head(at: int, verb: Verb, recipient: Recipient, attempts: int) -> str:
    envelope = recipient.envelope
    return (
        f"at={format_time(at)} event={verb.value} spid={envelope.spid:016X} qid={recipient.qid}"
        f" sender={text(envelope.sender)} recipient={text(recipient.address)} size={recipient.size}"
        f" origin={envelope.origin.value} client={text(envelope.client)} user={text(envelope.user)}"
        f" attempts={attempts} queued_ms={max(at - envelope.received, 0)}"
    )


def _said(reply: Reply) -> str:
    return f"code={reply.code} status={text(reply.status)} reply={text(reply.text)}"
