"""The server as a whole: its parts made, wired, started in order, reloaded and stopped in order."""

from mqcd.daemon.server import Server

__all__ = ["Server"]
