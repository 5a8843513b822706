"""Into which class a reply falls: the `class` of an event. Pure.

The words are the subjects of RFC 3463 (3), with `success` for what was taken. An enhanced status code says
its subject itself; where there is none, or it says nothing (X.0.Z), the reply code's usual meaning counts
(RFC 5321, 4.2.3, and the RFCs that gave a code its meaning). Whether trying again helps is the code's first
digit, not the class.
"""

from __future__ import annotations

from enum import StrEnum


class OutcomeClass(StrEnum):
    """What a reply is about."""

    SUCCESS = "success"
    ADDRESS = "address"
    """X.1: no such mailbox, a bad address, a domain that takes no mail."""
    MAILBOX = "mailbox"
    """X.2: the mailbox is full, busy or switched off."""
    SYSTEM = "system"
    """X.3: the peer, or this server, cannot take mail now."""
    NETWORK = "network"
    """X.4: DNS, connections, routes."""
    PROTOCOL = "protocol"
    """X.5: a command or parameter was not understood."""
    CONTENT = "content"
    """X.6: the content, its size or its form."""
    POLICY = "policy"
    """X.7: security and policy: spam, greylisting, login, TLS."""
    OTHER = "other"


_BY_SUBJECT = {
    "1": OutcomeClass.ADDRESS,
    "2": OutcomeClass.MAILBOX,
    "3": OutcomeClass.SYSTEM,
    "4": OutcomeClass.NETWORK,
    "5": OutcomeClass.PROTOCOL,
    "6": OutcomeClass.CONTENT,
    "7": OutcomeClass.POLICY,
}
_BY_CODE = {
    **dict.fromkeys((421, 451, 452, 521), OutcomeClass.SYSTEM),
    **dict.fromkeys((450, 550, 552), OutcomeClass.MAILBOX),
    **dict.fromkeys((551, 553, 556), OutcomeClass.ADDRESS),
    **dict.fromkeys((432, 454, 530, 534, 535, 538), OutcomeClass.POLICY),
    **dict.fromkeys((455, 500, 501, 502, 503, 504, 555), OutcomeClass.PROTOCOL),
}


def class_of(code: int, status: str) -> OutcomeClass:
    """The class of a reply; `status` is its enhanced status code or "", `code` 0 when it is not known."""
    if 200 <= code < 400:
        return OutcomeClass.SUCCESS
    _, _, detail = status.partition(".")
    subject, _, _ = detail.partition(".")
    return _BY_SUBJECT.get(subject) or _BY_CODE.get(code, OutcomeClass.OTHER)
