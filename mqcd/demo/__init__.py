"""The demonstration: server and receiver on loopback ports, and what happens to real messages.

A composition root: it may import every part that it shows.
"""

from mqcd.demo.play import run

__all__ = ["run"]
