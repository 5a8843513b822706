"""The message that a session is announcing: its envelope as far as it has come. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqcd.submit.esmtp.parameters import MailParameters

MAX_ENVELOPE = 2 * 1024 * 1024
"""Octets of recipients and their parameters in one message, independent of maxrecips: the list must not fill
memory, and must fit into one journal frame."""


@dataclass(slots=True)
class Transaction:
    """The message of the current transaction: mutable, since each RCPT adds to it."""

    sender: str
    parameters: MailParameters
    recipients: list[str] = field(default_factory=list)
    recipient_dsn: list[str] = field(default_factory=list)
    release: int = 0
    """The time before which it is not to be sent, ms; 0 = at once."""
    priority: int = 0
    accepted: int = 0
    """RCPT commands that are accepted, whichever recipients a filter has made of them."""
    octets: int = 0
    """Of the recipients and their parameters."""
    gave_place: bool = False
    """Whether it gave up its place in the load, because its recipients so far were refused."""
    announced: int = 0
    """Octets of its chunks so far (BDAT)."""

    def add(self, recipient: str, dsn: str) -> None:
        """One more recipient, with its parameters in normal form."""
        self.recipients.append(recipient)
        self.recipient_dsn.append(dsn)
        self.octets += len(recipient) + len(dsn)
        self.accepted += 1

    def take_back(self) -> str:
        """The recipient that was added last, which is none of the message any more."""
        recipient, dsn = self.recipients.pop(), self.recipient_dsn.pop()
        self.octets -= len(recipient) + len(dsn)
        self.accepted -= 1
        return recipient
