"""A name server on loopback that knows what a test tells it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

SOA = "ns.example. host.example. 1 3600 600 86400 {ttl}"


class NameServer(asyncio.DatagramProtocol):
    """Answers from `records`: (name, type) to record texts. Names without any record do not exist.

    Names in `broken` get SERVFAIL, names in `silent` no answer at all.
    """

    def __init__(
        self,
        records: Mapping[tuple[str, str], Sequence[str]],
        *,
        ttl: int = 60,
        negative_ttl: int = 30,
        broken: Sequence[str] = (),
        silent: Sequence[str] = (),
    ) -> None:
        self.records = records
        self.ttl = ttl
        self.negative_ttl = negative_ttl
        self.broken = broken
        self.silent = silent
        self.asked: Counter[tuple[str, str]] = Counter()
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: tuple[str | int, int]) -> None:
        query = dns.message.from_wire(data)
        name = query.question[0].name
        text, kind = name.to_text(omit_final_dot=True), dns.rdatatype.to_text(query.question[0].rdtype)
        self.asked[text, kind] += 1
        if text in self.silent:
            return
        response = dns.message.make_response(query)
        response.flags |= dns.flags.AA | dns.flags.RA
        if text in self.broken:
            response.set_rcode(dns.rcode.SERVFAIL)
        else:
            self._answer(response, text, kind)
        self._transport.sendto(response.to_wire(), addr)

    def _answer(self, response: dns.message.Message, text: str, kind: str) -> None:
        alias = self.records.get((text, "CNAME"))
        if alias:
            response.answer.append(dns.rrset.from_text(f"{text}.", self.ttl, "IN", "CNAME", alias[0]))
            text = alias[0].rstrip(".")
        found = self.records.get((text, kind), ())
        if found:
            response.answer.append(dns.rrset.from_text(f"{text}.", self.ttl, "IN", kind, *found))
            return
        soa = dns.rrset.from_text(
            "example.", self.negative_ttl, "IN", "SOA", SOA.format(ttl=self.negative_ttl)
        )
        response.authority.append(soa)
        if not any(name == text for name, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)


@asynccontextmanager
async def serving(server: NameServer) -> AsyncIterator[NameServer]:
    """Let it answer on a port of its own."""
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: server, local_addr=("127.0.0.1", 0)
    )
    try:
        yield server
    finally:
        transport.close()
