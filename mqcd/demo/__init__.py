"""The demonstration: server and receiver on loopback ports, and what happens to real messages."""

from mqcd.demo.play import run

__all__ = ["run"]
