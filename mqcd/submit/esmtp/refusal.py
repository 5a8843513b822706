"""A refusal at the door, as a value: its reply, and its reason for metrics, log and events. Pure."""

from __future__ import annotations

from enum import StrEnum

from mqcd.core.smtp.reply import Refused, Reply


class Reason(StrEnum):
    """Reasons of refusals at the door: the label of `mqcd_refused_total` and the event's reason."""

    RELAY = "relay"
    """A recipient that this client may not send to."""
    HELO = "helo"
    """A name in EHLO or HELO that validate_helo refuses."""
    SENDER = "sender"
    """A reverse-path that is no address, or that a setting refuses."""
    RECIPIENT = "recipient"
    """A forward-path that is no address, or that validate_recip refuses."""
    BLACKLIST = "blacklist"
    """A client (disconnected) or sender that the blacklist names."""
    SYNTAX = "syntax"
    """A line that is no command, or a parameter that cannot be taken."""
    SEQUENCE = "sequence"
    """A command out of its order, content sent ahead of 354 among them."""
    BAD_COMMANDS = "bad-commands"
    """More bad commands than maxbadreqs: disconnected."""
    REFUSALS = "refusals"
    """Too many recipients refused for good over one connection: disconnected."""
    SIZE = "size"
    """Larger than maxmsgsize."""
    RECIPIENTS = "recipients"
    """More recipients than maxrecips."""
    MESSAGES = "messages"
    """More messages over one connection than maxmessages: disconnected."""
    CONNECTIONS = "connections"
    """More connections from one address than maxpeerconnections: disconnected."""
    GREYLIST = "greylist"
    """A recipient that has to come again later."""
    QUOTA = "quota"
    """More messages, recipients or octets in a time than a quota allows."""
    SESSIONS = "sessions"
    """More sessions at once than a quota allows."""
    TIMEOUT = "timeout"
    """The client was silent for too long: disconnected."""
    CONTENT = "content"
    """Bare CR, NUL or, unless it is normalised, bare LF in the content: others may see two messages in it.
    Also a line of it that is longer than maxline."""
    LOOP = "loop"
    """maxhops Received headers."""
    SUPPRESSED = "suppressed"
    """A recipient that advice suppresses."""
    FILTER = "filter"
    """The listener's filter refused it."""
    STORE = "store"
    """The queue could not take it."""
    PROXY = "proxy"
    """A proxy without a PROXY header, or one from a client that is no proxy: disconnected."""
    TLS = "tls"
    """TLS that failed, or a command without the TLS that it needs."""
    HELD = "held"
    """A request for held mail that this client may not make."""
    AUTH = "auth"
    """A login that failed, or a message without the login that it needs."""
    OVERLOAD = "overload"
    """More than can be committed in time, or memory is short."""
    CLOSED = "closed"
    """The door is closed to new mail, or the server is stopping."""
    FAULT = "fault"
    """An internal error, which is logged."""


class DoorRefused(Refused):
    """A refusal that knows its reason."""

    def __init__(self, reason: Reason, reply: Reply, octets: bytes = b"") -> None:
        """`octets`: the reply as it is sent, where it is not the one line of `reply`."""
        super().__init__(reply)
        self.reason = reason
        self.octets = octets or reply.encode()
