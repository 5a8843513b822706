"""Connections lent to another process: what passes through, and when they may be used again."""

from __future__ import annotations

import asyncio
import socket

import pytest

from mqcd.net.control.lending import joined, lend, say_good

GREETING = b"220 ready\r\n"


@pytest.mark.parametrize("good", [True, False])
async def test_octets_pass_through_until_the_borrower_ends(good: bool) -> None:
    near, far = socket.socketpair()
    heard: list[bytes] = []

    async def borrow(end: socket.socket, said: socket.socket) -> None:
        with end, said:
            connection = await joined(end)
            heard.append(await connection.read())
            connection.write(b"EHLO a\r\n")
            heard.append(await connection.read())
            if good:
                say_good(said)
            connection.close()

    tasks: list[asyncio.Task[None]] = []

    def pass_on(end: socket.socket, said: socket.socket) -> bool:
        tasks.append(asyncio.ensure_future(borrow(end.dup(), said.dup())))
        return True

    with near, far:
        client = await joined(far)
        lending = asyncio.ensure_future(lend(await joined(near), GREETING, pass_on))
        assert await client.read() == b"EHLO a\r\n"
        client.write(b"250 b\r\n")
        assert await lending is good
        assert heard == [GREETING, b"250 b\r\n"]
        await asyncio.gather(*tasks)
        client.close()


async def test_what_nobody_takes_may_be_used_again() -> None:
    near, far = socket.socketpair()
    with near, far:
        connection = await joined(near)
        assert await lend(connection, GREETING, lambda *_: False)
        connection.write(b"QUIT\r\n")
        client = await joined(far)
        assert await client.read() == b"QUIT\r\n"
        client.close()
        connection.close()


async def test_a_client_that_leaves_ends_the_loan() -> None:
    near, far = socket.socketpair()
    kept: list[socket.socket] = []

    def pass_on(end: socket.socket, said: socket.socket) -> bool:
        kept.extend((end.dup(), said.dup()))
        kept[0].send(b"EHLO a\r\n")
        return True

    with near:
        connection = await joined(near)
        lending = asyncio.ensure_future(lend(connection, GREETING, pass_on))
        with far:
            far.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(far, 100) == b"EHLO a\r\n"
        assert not await lending
        connection.close()
    for each in kept:
        each.close()
