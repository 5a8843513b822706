"""aiosmtpd's envelope of the message that hooks see, and what of it becomes the door's transaction.

A hook decides by what it leaves in `mail_from`, `rcpt_tos` and `content`. `Left` is that, checked, and alone
brings it into the transaction. The null reverse-path is "<>" in the envelope, as in aiosmtpd.

| step | envelope | transaction |
|---|---|---|
| `begin`: no message is begun | new | |
| `offer`: before each hook | as it is, remembered | as the door has it |
| `Left.enter`: the hook accepts | as the hook leaves it | the same |
| `take_back`: it refuses, or fails | as at the offer | the dialogue's own |

So between two commands both have the same sender and recipients; recipients that the hook of MAIL adds join
the transaction with the next command that is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from aiosmtpd.smtp import Envelope

from mqcd.core.address import check_address
from mqcd.core.errors import DecodeError
from mqcd.core.value import value
from mqcd.submit.esmtp.transaction import MAX_ENVELOPE, Transaction

NULL = "<>"


class Holder(Protocol):
    """Where hooks find the envelope: the `server` that they get."""

    envelope: Envelope


@value
class Left:
    """What a hook has left of sender and recipients."""

    sender: str
    kept: int = 0
    """So many recipients of the transaction stay; those behind them go."""
    recipients: Sequence[str] = ()
    """These come behind them."""
    recipient_dsn: Sequence[str] = ()
    octets: int = 0
    """Of all recipients and their parameters then."""

    def enter(self, transaction: Transaction) -> None:
        """Bring it into the transaction that it was made for."""
        transaction.sender = self.sender
        transaction.recipients[self.kept :] = self.recipients
        transaction.recipient_dsn[self.kept :] = self.recipient_dsn
        transaction.octets = self.octets
        if not (transaction.parameters.smtputf8 or "".join((self.sender, *self.recipients)).isascii()):
            # Else no next hop could be given these addresses, whatever it offers.
            transaction.parameters = replace(transaction.parameters, smtputf8=True)


class HookEnvelope:
    """The envelope of one session's hooks, one message after the other."""

    def __init__(self, server: Holder) -> None:
        self._server = server
        self._before: tuple[str | None, list[str]] = None, []
        """Sender and recipients at the offer."""

    def begin(self) -> None:
        """There is nothing of a message."""
        self._server.envelope = Envelope()

    def offer(self) -> None:
        """A hook is called next."""
        self._before = self._server.envelope.mail_from, list(self._server.envelope.rcpt_tos)

    def take_back(self) -> None:
        """Nothing of what the hook has left counts."""
        self._server.envelope.mail_from, self._server.envelope.rcpt_tos = self._before

    def left_sender(self) -> Left | None:
        """What the hook of MAIL has left; None = no sender. Raises DecodeError."""
        return Left(sender=self._sender("")) if self._server.envelope.mail_from else None

    def left(self, transaction: Transaction, *, offered: bool) -> Left:
        """What any other hook has left; `offered`: the transaction's last recipient is the one that it was
        called with, and those that it has added get its DSN parameters. Raises DecodeError."""
        sender = self._sender(transaction.sender)
        if self._server.envelope.rcpt_tos == transaction.recipients:
            return Left(sender=sender, kept=len(transaction.recipients), octets=transaction.octets)
        before, addresses = self._before[1], list(self._server.envelope.rcpt_tos)
        known = transaction.recipients[: len(transaction.recipients) - offered]
        kept = len(known) if before == known == addresses[: len(known)] else 0
        own: dict[str, str] = {}
        if kept < len(before):
            own = dict.fromkeys(before, "") | dict(zip(known, transaction.recipient_dsn, strict=False))
        new = transaction.recipient_dsn[-1] if offered else ""
        added = [check_address(each) for each in addresses[kept:]]
        dsn = [own.get(each, new) for each in added]
        gone = (*transaction.recipients[kept:], *transaction.recipient_dsn[kept:])
        octets = transaction.octets - sum(map(len, gone)) + sum(map(len, (*added, *dsn)))
        if octets > MAX_ENVELOPE:
            raise DecodeError("the filter left more recipients than a message may have")
        return Left(sender=sender, kept=kept, recipients=added, recipient_dsn=dsn, octets=octets)

    def _sender(self, known: str) -> str:
        """The sender that the hook has left; `known` is one already. Raises DecodeError."""
        sender = self._server.envelope.mail_from or NULL
        if sender == NULL:
            return ""
        return sender if sender == known else check_address(sender)

    def content(self) -> bytes:
        """What the hook of DATA has left, CRLF at the end of each line. Raises DecodeError, TypeError."""
        content: Any = self._server.envelope.content
        if content is None:
            raise DecodeError("the filter left no content")
        if isinstance(content, str):
            content = content.encode("utf-8", "surrogateescape")
        octets = content if isinstance(content, bytes) else memoryview(content).tobytes()
        if b"\0" in octets:
            raise DecodeError("the filter left a NUL in the content")
        ends = octets.count(b"\r\n")
        if ends != octets.count(b"\n") or ends != octets.count(b"\r"):
            octets = octets.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")
        return octets if octets.endswith(b"\r\n") or not octets else octets + b"\r\n"
