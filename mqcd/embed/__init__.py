"""The queue inside another program: a library for asyncio programs, and a handler for aiosmtpd's controllers.

A composition root beside `mqcd.daemon`, without listeners and pages of its own; it may import what the daemon
may, and what the daemon derives from settings. What needs aiosmtpd is imported when it is asked for.
"""

from typing import TYPE_CHECKING, Any

from mqcd.core.smtp.reply import Refused, Reply
from mqcd.embed.backoff import five_attempts
from mqcd.embed.message import Draft, Mail
from mqcd.embed.queue import Queue
from mqcd.embed.sync import SyncQueue
from mqcd.embed.wishes import SmtpRelay

if TYPE_CHECKING:
    from mqcd.embed.handler import QueueHandler

__all__ = [
    "Draft",
    "Mail",
    "Queue",
    "QueueHandler",
    "Refused",
    "Reply",
    "SmtpRelay",
    "SyncQueue",
    "five_attempts",
]


def __getattr__(name: str) -> Any:
    if name == "QueueHandler":
        from mqcd.embed.handler import QueueHandler

        return QueueHandler
    raise AttributeError(name)
