"""The commands that announce a message, and whether a server can be given it at all. Pure.

What the next hop cannot carry is bounced before MAIL: SMTPUTF8 that is needed (5.6.7, RFC 6531 3.5),
content declared 8BITMIME that does have 8-bit octets (5.6.3, RFC 6152 3), more octets than its SIZE (5.3.4,
RFC 1870 6.1). 8-bit content that was never declared so goes out as it came in. DSN's parameters go where
DSN is offered (RFC 3461, 5.2.1); elsewhere what they ask for stays with us.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mqcd.core.reply import Reply
from mqcd.deliver.exchange import Transaction

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
    return b"MAIL FROM:<%b>%b\r\n" % (transaction.sender.encode(), parameters)


def rcpts(transaction: Transaction, extensions: Mapping[str, str]) -> list[bytes]:
    """The RCPT commands, one for each recipient."""
    recipients = transaction.recipients
    if not transaction.recipient_dsn or "DSN" not in extensions:
        return [b"RCPT TO:<%b>\r\n" % recipient.encode() for recipient in recipients]
    return [
        b"RCPT TO:<%b>%b\r\n" % (recipient.encode(), b" " + dsn.encode() if dsn else b"")
        for recipient, dsn in zip(recipients, transaction.recipient_dsn, strict=True)
    ]


def obstacle(transaction: Transaction, extensions: Mapping[str, str]) -> Reply | None:
    """Why this server cannot be given the message at all; None when it can."""
    if transaction.smtputf8 and "SMTPUTF8" not in extensions:
        return Reply(code=553, status="5.6.7", text="the next hop does not offer SMTPUTF8")
    if transaction.eight and "8BITMIME" not in extensions:
        text = "8-bit content, and the next hop does not offer 8BITMIME"
        return Reply(code=554, status="5.6.3", text=text)
    limit = extensions.get("SIZE", "")
    if limit.isdecimal() and 0 < int(limit[:18]) < transaction.size:
        text = f"message of {transaction.size} octets, and the next hop takes at most {limit}"
        return Reply(code=552, status="5.3.4", text=text)
    addresses = (transaction.sender, *transaction.recipients)
    if not all(address.isprintable() for address in addresses):
        return Reply(code=553, status="5.1.3", text="an address contains control characters")
    asked = (transaction.dsn, *transaction.recipient_dsn)
    if not all(_WORDS.fullmatch(words) for words in asked if words):
        return Reply(code=554, status="5.5.4", text="DSN parameters that are none")
    return None
