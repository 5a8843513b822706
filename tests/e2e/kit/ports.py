"""Ports for servers that must come back on the same one."""

from __future__ import annotations

import random
import socket

RANGE = range(10_000, 32_000)
"""Below those that the kernel gives to outgoing connections: one of these could take the port meanwhile."""


def free_port() -> int:
    """A port on loopback that is free now. Where it can be helped, let the server pick: port 0."""
    while True:
        port = random.choice(RANGE)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
