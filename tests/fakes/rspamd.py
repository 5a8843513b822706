"""A small rspamd: it answers each HTTP request as a test says, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class Asked:
    """One request."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        """The values of the headers of this name."""
        return [value for each, value in self.headers if each.lower() == name.lower()]


@dataclass(kw_only=True)
class FakeRspamd:
    """One server on a free port."""

    answer: dict[str, Any] = field(default_factory=lambda: {"action": "no action"})
    raw: bytes | None = None
    """The whole answer, instead of a good one around `answer`; None = a good one."""
    stalls: bool = False
    """No answer comes."""
    port: int = 0
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.split("\r\n")[:-2]
            headers = [(name, value.strip()) for name, _, value in (each.partition(":") for each in lines)]
            length = dict(headers).get("Content-Length", "0")
            self.asked.append(Asked(line=line, headers=headers, body=await reader.readexactly(int(length))))
            if self.stalls:
                await reader.read()
            else:
                writer.write(self._octets())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def _octets(self) -> bytes:
        if self.raw is not None:
            return self.raw
        body = json.dumps(self.answer).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[FakeRspamd]:
    """A server that runs."""
    fake = FakeRspamd(**settings)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        await server.wait_closed()
