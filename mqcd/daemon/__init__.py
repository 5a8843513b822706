"""The server as a whole: its parts made, wired, started in order, reloaded and stopped in order.

A composition root: the one place that joins doors, queue, delivery, reports and ops.
"""

from mqcd.daemon.server import Server

__all__ = ["Server"]
