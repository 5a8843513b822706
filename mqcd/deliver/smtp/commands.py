"""The commands of a transaction, and whether a server can accept the message and each recipient. Pure.

Mail that the next hop cannot carry is bounced before MAIL: SMTPUTF8 that is needed (5.6.7, RFC 6531 3.5),
content declared 8BITMIME that does have 8-bit octets (5.6.3, RFC 6152 3), more octets than its SIZE (5.3.4,
RFC 1870 6.1). 8-bit content that was never declared so goes out as it came in. DSN's parameters go where
DSN is offered (RFC 3461, 5.2.1); elsewhere what they ask for stays with us.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
        return Reply(code=553, status="5.1.3", text="address with invisible characters")
    if not recipient.isascii() and not transaction.smtputf8:
        return Reply(code=553, status="5.6.7", text="the next hop does not offer SMTPUTF8")
    dsn = transaction.recipient_dsn[index] if transaction.recipient_dsn else ""
    if dsn and not _WORDS.fullmatch(dsn):
        return Reply(code=554, status="5.5.4", text="invalid DSN parameters")
    return None


def obstacle(transaction: Transaction, extensions: Mapping[str, str]) -> Reply | None:
    """Why this server cannot be given the message at all; None when it can."""
    if transaction.smtputf8 and "SMTPUTF8" not in extensions:
        return Reply(code=553, status="5.6.7", text="the next hop does not offer SMTPUTF8")
    if transaction.eight and "8BITMIME" not in extensions:
        text = "8-bit content, the next hop does not offer 8BITMIME"
        return Reply(code=554, status="5.6.3", text=text)
    limit = extensions.get("SIZE", "")
    if limit.isdecimal() and 0 < int(limit[:18]) < transaction.size:
        text = f"message of {transaction.size} octets, the next hop takes at most {limit}"
        return Reply(code=552, status="5.3.4", text=text)
    if not is_visible(transaction.sender):
        return Reply(code=553, status="5.1.7", text="sender with invisible characters")
    if transaction.dsn and not _WORDS.fullmatch(transaction.dsn):
        return Reply(code=554, status="5.5.4", text="invalid DSN parameters")
    return None
