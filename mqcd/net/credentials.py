"""Which user is at the other end of a unix socket, as the kernel says (SO_PEERCRED, Linux)."""

from __future__ import annotations

import pwd
import socket
import struct

_UCRED = struct.Struct("3i")
NOBODY = -1
"""Stands for the user id of a peer that has none: of any other socket, or system."""


def peer_uid(connection: socket.socket) -> int:
    """User id that the peer had when it connected."""
    if connection.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return NOBODY
    octets = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    uid: int = _UCRED.unpack(octets)[1]
    return uid


def user_name(uid: int) -> str:
    """The user's name, or its number where the system has no name for it. May wait for LDAP or the like."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
