"""What a transaction sends, and whether a server can accept the message and each recipient. Pure.

Mail that the next hop cannot carry is bounced before MAIL: SMTPUTF8 that is needed (5.6.7, RFC 6531 3.5),
content declared 8BITMIME that does have 8-bit octets (5.6.3, RFC 6152 3), more octets than its SIZE (5.3.4,
RFC 1870 6.1). 8-bit content that was never declared so goes out as it came in. DSN's parameters go where
DSN is offered (RFC 3461, 5.2.1); elsewhere what they ask for stays with us.

Content goes dot-stuffed after DATA (RFC 5321, 4.5.2), or by BDAT (RFC 3030). It is never changed but for the
doubled dots, and, after DATA, for a CRLF added where the last line has none: the final dot needs a line of
its own. BDAT counts octets and needs neither.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from mqcd.core.address import is_visible
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.smtp.exchange import Transaction

_WORDS = re.compile(r"[!-~]+(?: [!-~]+)*")


def mail(transaction: Transaction, extensions: Mapping[str, str]) -> bytes:
    """The MAIL command."""
    parameters = b""
    if "SIZE" in extensions:
        parameters += b" SIZE=%d" % transaction.size
    if transaction.eight and "8BITMIME" in extensions:
        parameters += b" BODY=8BITMIME"
    if transaction.smtputf8:
        parameters += b" SMTPUTF8"
    if transaction.dsn and "DSN" in extensions:
        parameters += b" " + transaction.dsn.encode()
    if transaction.priority and "MT-PRIORITY" in extensions:
        parameters += b" MT-PRIORITY=%d" % transaction.priority
    return b"MAIL FROM:<%b>%b\r\n" % (transaction.sender.encode(), parameters)


def rcpt(transaction: Transaction, extensions: Mapping[str, str], index: int) -> bytes:
    """The RCPT command of one recipient."""
    recipient = transaction.recipients[index].encode()
    if not transaction.recipient_dsn or "DSN" not in extensions:
        return b"RCPT TO:<%b>\r\n" % recipient
    dsn = transaction.recipient_dsn[index]
    return b"RCPT TO:<%b>%b\r\n" % (recipient, b" " + dsn.encode() if dsn else b"")


def unsendable(transaction: Transaction, index: int) -> Reply | None:
    """Why this server cannot be given one recipient; None when it can. Others of the message go."""
    recipient = transaction.recipients[index]
    if not is_visible(recipient):
        return Reply(code=553, status="5.1.3", text="address with invisible characters", own=True)
    if not recipient.isascii() and not transaction.smtputf8:
        return Reply(code=553, status="5.6.7", text="the next hop does not offer SMTPUTF8", own=True)
    dsn = transaction.recipient_dsn[index] if transaction.recipient_dsn else ""
    if dsn and not _WORDS.fullmatch(dsn):
        return Reply(code=554, status="5.5.4", text="invalid DSN parameters", own=True)
    return None


def obstacle(transaction: Transaction, extensions: Mapping[str, str]) -> Reply | None:
    """Why this server cannot be given the message at all; None when it can."""
    if transaction.smtputf8 and "SMTPUTF8" not in extensions:
        return Reply(code=553, status="5.6.7", text="the next hop does not offer SMTPUTF8", own=True)
    if transaction.eight and "8BITMIME" not in extensions:
        text = "8-bit content, the next hop does not offer 8BITMIME"
        return Reply(code=554, status="5.6.3", text=text, own=True)
    limit = extensions.get("SIZE", "")
    if limit.isdecimal() and 0 < int(limit[:18]) < transaction.size:
        text = f"message of {transaction.size} octets, the next hop takes at most {limit}"
        return Reply(code=552, status="5.3.4", text=text, own=True)
    if not is_visible(transaction.sender):
        return Reply(code=553, status="5.1.7", text="sender with invisible characters", own=True)
    if transaction.dsn and not _WORDS.fullmatch(transaction.dsn):
        return Reply(code=554, status="5.5.4", text="invalid DSN parameters", own=True)
    return None


class Wrapping(Protocol):
    """Encodes the content of one message, chunk after chunk."""

    def wrap(self, chunk: bytes, last: bool) -> bytes:
        """The next octets of the content as they go over the wire; with `last`, its end as well."""


class DotStuffer:
    """Doubles the dots that begin a line, however the content is cut, and ends it with a lone one."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b"\r\n"

    def wrap(self, chunk: bytes, last: bool) -> bytes:
        return self.stuff(chunk) + self.final() if last else self.stuff(chunk)

    def stuff(self, chunk: bytes) -> bytes:
        """The next octets of the content as they go over the wire."""
        if not chunk:
            return chunk
        before = self._tail
        self._tail = chunk[-2:] if len(chunk) > 1 else before[-1:] + chunk
        # See `core.smtp.transparency` for the ways of searching.
        dots = b"." in chunk and chunk.rfind(b"\r\n.") >= 0
        stuffed = chunk.replace(b"\r\n.", b"\r\n..") if dots else chunk
        if chunk[:1] == b"." and before == b"\r\n":
            return b"." + stuffed
        if chunk[:2] == b"\n." and before[-1:] == b"\r":
            return b"\n." + stuffed[1:]
        return stuffed

    def final(self) -> bytes:
        """The final dot, on a line of its own."""
        return b".\r\n" if self._tail == b"\r\n" else b"\r\n.\r\n"


class Chunker:
    """Each chunk behind a BDAT that says how long it is."""

    __slots__ = ()

    def wrap(self, chunk: bytes, last: bool) -> bytes:
        """See `Wrapping`. The last chunk may be empty."""
        return b"BDAT %d%b\r\n%b" % (len(chunk), b" LAST" if last else b"", chunk)
