"""aiosmtpd's envelope of the message that hooks see, and what of it becomes the door's transaction.

A hook decides by what it leaves in `mail_from`, `rcpt_tos` and `content`. Only this module brings that into
the transaction, checked. The null reverse-path is "<>" in the envelope, as in aiosmtpd.

| step | the transaction's recipients | `rcpt_tos` |
|---|---|---|
| `offer_recipient` | without the one that the door has just added | as after the last step |
| `accept` | those in `rcpt_tos` | as the hook leaves it |
| `refuse` | without the one that was offered | as before the offer |
| `take_message` | those in `rcpt_tos` | as the hook leaves it |

So between two commands both have the same recipients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aiosmtpd.smtp import Envelope

from mqcd.core.address import check_address
from mqcd.core.errors import DecodeError
from mqcd.submit.esmtp.transaction import MAX_ENVELOPE, Transaction

_NULL = "<>"


class Holder(Protocol):
    """Where hooks find the envelope: the `server` that they get."""

    envelope: Envelope


class HookEnvelope:
    """The envelope of one session's hooks, one message after the other."""

    def __init__(self, server: Holder) -> None:
        self._server = server
        self._dsn: dict[str, str] = {}
        """NOTIFY and ORCPT by recipient."""
        self._offered = ""
        """Those of the recipient that was offered last."""
        self._before: list[str] = []
        """`rcpt_tos` before that."""

    def begin(self) -> None:
        """There is nothing of a message."""
        self._server.envelope = Envelope()
        self._dsn.clear()

    def offer_sender(self, transaction: Transaction) -> str:
        """The sender as a hook gets it."""
        self._server.envelope.smtp_utf8 = transaction.parameters.smtputf8
        return transaction.sender or _NULL

    def add_sender(self, sender: str, options: Sequence[str]) -> None:
        """There is no hook: the envelope gets what it would have been called with."""
        self._server.envelope.mail_from = sender
        self._server.envelope.mail_options.extend(options)

    def take_sender(self, transaction: Transaction) -> None:
        """The sender is what the hook has left. Raises DecodeError."""
        sender = self._server.envelope.mail_from or _NULL
        transaction.sender = "" if sender == _NULL else check_address(sender)

    def offer_recipient(self, transaction: Transaction) -> str:
        """Take the last recipient out of the transaction; `accept` puts it back if the hook wants it."""
        self._before = list(self._server.envelope.rcpt_tos)
        self._offered = transaction.recipient_dsn.pop()
        return transaction.recipients.pop()

    def add_recipient(self, recipient: str, options: Sequence[str]) -> None:
        """There is no hook: the envelope gets what it would have been called with."""
        self._server.envelope.rcpt_tos.append(recipient)
        self._server.envelope.rcpt_options.extend(options)

    def accept(self, transaction: Transaction) -> None:
        """The recipients are what the hook has left; those that it has added have the DSN parameters of the
        one that was offered. Raises DecodeError; `refuse` has to follow then."""
        added = self._server.envelope.rcpt_tos[len(self._before) :]
        self._dsn.update(dict.fromkeys(added, self._offered))
        self._take_recipients(transaction, self._before)

    def refuse(self) -> None:
        """The recipient that was offered is not one of the message."""
        self._server.envelope.rcpt_tos[:] = self._before

    def offer_content(self, content: bytes) -> None:
        """The message has come whole."""
        self._server.envelope.content = self._server.envelope.original_content = content

    def take_message(self, transaction: Transaction) -> bytes:
        """Sender and recipients are what the hook has left; returns its content, with CRLF at
        the end of each line. Raises DecodeError."""
        self.take_sender(transaction)
        self._take_recipients(transaction, [])
        if sum(map(len, transaction.recipients)) > MAX_ENVELOPE:
            raise DecodeError("the filter left more recipients than a message may have")
        return _with_crlf(self._server.envelope.content)

    def _take_recipients(self, transaction: Transaction, before: list[str]) -> None:
        """Set the recipients; those in `before` are already checked."""
        addresses = self._server.envelope.rcpt_tos
        checked = len(before) if addresses[: len(before)] == before else 0
        added = [check_address(each) for each in addresses[checked:]]
        transaction.recipients[checked:] = added
        transaction.recipient_dsn[checked:] = [self._dsn.get(each, "") for each in added]


def _with_crlf(content: str | bytes | None) -> bytes:
    """Content that a hook may have changed, with CRLF at the end of each line. Raises DecodeError."""
    if content is None:
        raise DecodeError("the filter left no content")
    octets = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else bytes(content)
    if b"\0" in octets:
        raise DecodeError("the filter left a NUL in the content")
    ends = octets.count(b"\r\n")
    if ends != octets.count(b"\n") or ends != octets.count(b"\r"):
        octets = octets.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")
    return octets if octets.endswith(b"\r\n") or not octets else octets + b"\r\n"
