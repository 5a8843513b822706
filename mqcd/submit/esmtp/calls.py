"""Requests for held mail at the door, ETRN and ATRN: what a session hands on, and the replies. Pure."""

from __future__ import annotations

from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value

ETRN_SYNTAX = Reply(code=501, status="5.5.4", text="Syntax: ETRN domain, @domain or #name")
ATRN_SYNTAX = Reply(code=501, status="5.5.4", text="Syntax: ATRN [domain[,domain...]]")
NODE_DENIED = Reply(code=459, status="5.7.1", text="Node is not allowed")
ATRN_DENIED = Reply(code=450, status="4.7.1", text="ATRN request refused")
STARTED = Reply(code=250, status="2.0.0", text="Queuing for node started")
NOTHING = Reply(code=251, status="2.0.0", text="No messages waiting for node")
UNABLE = Reply(code=458, status="4.3.0", text="Unable to queue messages for node, try again later")
REVERSING = Reply(code=250, status="2.0.0", text="OK now reversing the connection")
NO_MAIL = Reply(code=453, status="4.0.0", text="You have no mail")
BUSY = Reply(code=451, status="4.3.0", text="Unable to process ATRN request now")


@value(kw_only=False)
class Start:
    """Work through the mail of a node now (RFC 1985)."""

    node: str
    user: str
    """Who asks; "" = a client without login."""


@value(kw_only=False)
class Collect:
    """Send the mail of these domains over this connection (RFC 2645)."""

    domains: tuple[str, ...]
    """None = all of the user's."""
    user: str
