"""A DNS server on loopback that knows what the test tells it, by UDP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import dns.flags
import dns.message
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from tests.e2e.kit.receivers import LoopThread
from tests.e2e.kit.waiting import Board

Zone = Mapping[str, Mapping[str, list[str]]]
"""Name, without a final dot, to record type to values; a name that is missing does not exist."""
TTL = 1


class NameServer:
    """Answers from `zone`; nothing on names in `silent`, SERVFAIL on those in `failing`."""

    def __init__(self, thread: LoopThread, zone: Zone) -> None:
        self.zone = zone
        self.silent: frozenset[str] = frozenset()
        self.failing: frozenset[str] = frozenset()
        self.asked: Board[tuple[str, str]] = Board()
        """Name and type of each question."""
        self._thread = thread
        self._transport = thread.call(self._listen())
        self.port: int = self._transport.get_extra_info("sockname")[1]

    async def _listen(self) -> asyncio.DatagramTransport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Protocol(self), local_addr=("127.0.0.1", 0)
        )
        return transport

    def close(self) -> None:
        self._thread.loop.call_soon_threadsafe(self._transport.close)

    def answer(self, question: bytes) -> bytes | None:
        query = dns.message.from_wire(question)
        asked = query.question[0]
        name = asked.name.to_text(omit_final_dot=True).lower()
        kind = dns.rdatatype.to_text(asked.rdtype)
        self.asked.put((name, kind))
        if name in self.silent:
            return None
        response = dns.message.make_response(query)
        response.flags |= dns.flags.AA | dns.flags.RA
        if name in self.failing:
            response.set_rcode(dns.rcode.SERVFAIL)
        elif name not in self.zone:
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif values := self.zone[name].get(kind):
            response.answer.append(dns.rrset.from_text(asked.name, TTL, dns.rdataclass.IN, kind, *values))
        return response.to_wire()


class _Protocol(asyncio.DatagramProtocol):
    def __init__(self, server: NameServer) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        answer = self._server.answer(data)
        if answer is not None and self._transport is not None:
            self._transport.sendto(answer, addr)
