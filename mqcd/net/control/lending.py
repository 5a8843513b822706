"""A connection is lent to another process of the server: its octets pass through this one, which has its TLS.

The borrower gets one end of a pipe of octets, and one of a pipe on which it reports a good end. Without that
the connection is in the midst of something, and is not used again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from mqcd.core.ports import Connection
from mqcd.net.shared.taken import TakenConnection

TAKE_S = 10.0
"""How long a borrower may take to send its first octets."""
_GOOD = b"1"


async def lend(
    connection: Connection, greeting: bytes, pass_on: Callable[[socket.socket, socket.socket], bool]
) -> bool:
    """Lend a connection: `pass_on` gives both ends to the borrower, which reads `greeting` first. Returns
    whether the connection may be used again."""
    near, far = socket.socketpair()
    heard, said = socket.socketpair()
    with near, far, heard, said:
        if not pass_on(far, said):
            return True
        far.close()
        said.close()
        octets = await joined(near)
        try:
            octets.write(greeting)
            async with asyncio.timeout(TAKE_S):
                first = await octets.read()
        except TimeoutError:
            # Nobody has it, so nothing was sent.
            return True
        else:
            connection.write(first)
            await _pass_through(connection, octets)
            heard.setblocking(False)
            with suppress(OSError):
                return heard.recv(1) == _GOOD
            return False
        finally:
            octets.close()


async def joined(end: socket.socket) -> TakenConnection:
    """An end of a pipe of octets as a connection, which has a descriptor of its own."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.connect_accepted_socket(lambda: TakenConnection(loop), end.dup())
    return connection


def say_good(said: socket.socket) -> None:
    """The borrower has come to a good end. To be called before it closes the pipe of octets."""
    with suppress(OSError):
        said.send(_GOOD)


async def _pass_through(one: Connection, other: Connection) -> None:
    """Copy octets both ways until either ends."""
    copies = [asyncio.ensure_future(_copy(*pair)) for pair in ((one, other), (other, one))]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in copies:
            each.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _copy(source: Connection, target: Connection) -> None:
    while octets := await source.read():
        target.write(octets)
        await target.drain()
