"""The queue inside another program: a handler for aiosmtpd's controllers.

A composition root beside `mqcd.daemon`, without listeners and pages of its own; it may import what the daemon
may, and what the daemon derives from settings.
"""

from mqcd.embed.handler import QueueHandler

__all__ = ["QueueHandler"]
