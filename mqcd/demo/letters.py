"""The messages of the demonstration and the end that each of their recipients should come to. Pure."""

from __future__ import annotations

import base64
import random
from enum import Enum

from mqcd.core.value import value

SENDER = "you@here.example"
GREYLISTED = "greylist.example"
BUSY = "busy.example"
REJECTING = "reject.example"

LARGE_OCTETS = 2_000_000


class End(Enum):
    """The expected end of a recipient."""

    DELIVERED = "delivered at the first attempt"
    RETRIED = "deferred, then delivered at the second attempt"
    WAITING = "deferred again and again: it waits in the queue"
    REPORTED = "refused for good, and reported to its sender"


@value
class Letter:
    """One message, as its sender hands it over."""

    kind: str
    recipients: tuple[str, ...]
    content: bytes
    end: End = End.DELIVERED
    options: tuple[str, ...] = ()
    """Parameters of MAIL."""


def letters() -> tuple[Letter, ...]:
    """All messages, in the order in which they are sent."""
    return (
        Letter(kind="plain", recipients=("ann@club.example",), content=_content("A plain one", "Hello.")),
        Letter(
            kind="several",
            recipients=("bob@club.example", "cho@club.example", "dee@firm.example"),
            content=_content("For three of you", "Two of you share a server.", ".", ".. and dots are kept."),
        ),
        Letter(
            kind="8-bit",
            recipients=("éric@firm.example",),
            content=_content("Grüße, 你好", "Žluťoučký kůň, ещё раз.", charset="utf-8"),
            options=("BODY=8BITMIME", "SMTPUTF8"),
        ),
        Letter(kind="large", recipients=("fay@club.example",), content=_large()),
        Letter(
            kind="greylisted",
            recipients=(f"gus@{GREYLISTED}",),
            content=_content("Come back later", "The next hop says 450 at first."),
            end=End.RETRIED,
        ),
        Letter(
            kind="deferred",
            recipients=(f"hal@{BUSY}",),
            content=_content("Nobody has time", "The next hop says 451 every time."),
            end=End.WAITING,
        ),
        Letter(
            kind="rejected",
            recipients=(f"ivy@{REJECTING}",),
            content=_content("No such user", "The next hop says 550."),
            end=End.REPORTED,
        ),
    )


def _content(subject: str, *lines: str, charset: str = "us-ascii") -> bytes:
    head = (
        f"From: You <{SENDER}>",
        f"Subject: {subject}",
        "MIME-Version: 1.0",
        f"Content-Type: text/plain; charset={charset}",
        f"Content-Transfer-Encoding: {'7bit' if charset == 'us-ascii' else '8bit'}",
    )
    return "\r\n".join((*head, "", *lines, "")).encode()


def _large() -> bytes:
    """A message beyond what the journal holds: it goes to the spool."""
    octets = random.Random(1).randbytes(LARGE_OCTETS * 3 // 4)  # noqa: S311 (an attachment, not a key)
    lines = base64.encodebytes(octets).replace(b"\n", b"\r\n")
    head = _content("Holiday pictures").replace(b"7bit", b"base64").replace(b"text/plain", b"image/x-demo")
    return head + lines
