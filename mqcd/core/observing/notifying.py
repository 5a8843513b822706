"""Notifies an observer of a verdict. Pure."""

from __future__ import annotations

from typing import assert_never

from mqcd.core.model import (
    Amended,
    Bounced,
    Deferred,
    Delivered,
    Discarded,
    Expired,
    Purged,
    Recipient,
    Reported,
    Verdict,
)
from mqcd.core.ports import Observer


def notify_verdict(observer: Observer, at: int, recipient: Recipient, verdict: Verdict) -> None:
    """Notify the observer of one verdict. `recipient`: as it was tried, not as it became."""
    match verdict:
        case Delivered():
            observer.delivered(at, recipient, verdict)
        case Deferred():
            observer.deferred(at, recipient, verdict)
        case Bounced():
            observer.bounced(at, recipient, verdict)
        case Expired():
            observer.expired(at, recipient, verdict)
        case Reported():
            observer.reported(at, recipient, verdict.report_spid)
        case Discarded():
            observer.discarded(at, recipient, verdict.reason)
        case Amended():
            for batch in (*verdict.earlier, verdict.batch):
                observer.amended(at, recipient, Amended(batch=batch))
        case Purged():
            observer.purged(at, recipient)
        case _:
            assert_never(verdict)
