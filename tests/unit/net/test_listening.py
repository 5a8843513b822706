"""Listening sockets and the loop over accept."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket

import pytest

from mqcd.net.listening import REST_MS, Acceptor, bind
from tests.fakes.clock import FakeClock


class Listening(socket.socket):
    """A listening socket that can be made to fail."""

    error = 0

    def accept(self) -> tuple[socket.socket, object]:
        if self.error:
            raise OSError(self.error, "told to fail")
        return super().accept()


async def connected(port: int, host: str = "127.0.0.1") -> socket.socket:
    """A client's socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    client = socket.socket(family, socket.SOCK_STREAM)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (host, port))
    return client


async def turns() -> None:
    """Let the loop look at its sockets."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_both_families_come_to_an_unspecified_ipv6_address(host: str) -> None:
    taken: list[object] = []

    def take(connection: socket.socket, peer: object) -> None:
        taken.append(peer)
        connection.close()

    try:
        acceptor = Acceptor(await bind("::", 0), take, FakeClock())
        acceptor.listen(16)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    client = await connected(acceptor.port, host)
    await turns()
    acceptor.close()
    client.close()
    assert len(taken) == 1


@pytest.mark.parametrize("trouble", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
async def test_a_shortage_neither_spins_nor_ends_the_listener(
    trouble: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    taken: list[socket.socket] = []
    listening = Listening(socket.AF_INET, socket.SOCK_STREAM)
    listening.setblocking(False)
    listening.bind(("127.0.0.1", 0))
    acceptor = Acceptor([listening], lambda connection, peer: taken.append(connection), clock)
    acceptor.listen(16)
    listening.error = trouble
    client = await connected(acceptor.port)
    with caplog.at_level(logging.WARNING):
        await clock.run_for(3 * REST_MS)
    assert len(caplog.records) == 1
    assert taken == []
    listening.error = 0
    await clock.run_for(REST_MS)
    await turns()
    acceptor.close()
    assert len(taken) == 1
    for each in (client, *taken):
        each.close()


async def test_one_broken_connection_does_not_hold_up_the_next() -> None:
    taken: list[socket.socket] = []
    listening = Listening(socket.AF_INET, socket.SOCK_STREAM)
    listening.setblocking(False)
    listening.bind(("127.0.0.1", 0))
    acceptor = Acceptor([listening], lambda connection, peer: taken.append(connection), FakeClock())
    acceptor.listen(16)
    listening.error = errno.ECONNABORTED
    client = await connected(acceptor.port)
    await turns()
    listening.error = 0
    await turns()
    acceptor.close()
    assert len(taken) == 1
    for each in (client, *taken):
        each.close()


async def test_a_taken_port_leaves_nothing_open() -> None:
    [first] = await bind("127.0.0.1", 0)
    first.listen(16)
    with pytest.raises(OSError, match="in use"):
        await bind("127.0.0.1", first.getsockname()[1])
    first.close()
