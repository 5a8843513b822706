"""Ports for servers that must come back on the same one."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port on loopback that is free now. Where it can be helped, let the server pick: port 0."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
