"""What the tests of `mqcd.submit` share: a door on a free port, and a client that speaks plain octets."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mqcd.config.settings import ListenerSettings, ListenerSslSettings, ServerSettings
from mqcd.core.model import Recipient
from mqcd.core.ports import Clock
from mqcd.core.selecting.selection import Selection
from mqcd.net.securing.server import ListenerTls
from mqcd.submit import Door
from mqcd.submit.policy.capacity import Capacity
from mqcd.submit.policy.greylist import Greylist
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore

LOOPBACK = ipaddress.ip_network("127.0.0.0/8")


def server(**changes: Any) -> ServerSettings:
    """A server that takes mail for example.com from anybody."""
    changes.setdefault("relay_domains", ("example.com",))
    return ServerSettings(announcehost="mx.example.org", **changes)


class House:
    """A door with all that stands behind it."""

    def __init__(
        self,
        settings: ServerSettings,
        store: MemoryStore | None = None,
        clock: Clock | None = None,
        inline_max: int = 65536,
        capacity: Capacity | None = None,
        greylist: Greylist | None = None,
        ssl: ListenerSslSettings | None = None,
        tls: ListenerTls | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.observer = RecordingObserver()
        self.store = store or MemoryStore(self.clock, self.observer)
        listener = ListenerSettings(name="test", port=0, ssl=ssl or ListenerSslSettings(), server=settings)
        self.door = Door(
            listener,
            self.store,
            self.clock,
            self.observer,
            inline_max=inline_max,
            capacity=capacity,
            greylist=greylist,
            tls=tls,
        )

    async def queued(self) -> list[Recipient]:
        return [recipient async for recipient in self.store.scan(Selection())]

    async def content(self, recipient: Recipient) -> bytes:
        """The content without our Received header."""
        handle = await self.store.content(recipient)
        octets = await handle.read(handle.size)
        handle.close()
        header, _, rest = octets.partition(b" +0000\r\n")
        assert header.startswith(b"Received: ")
        return rest

    def reasons(self) -> list[str]:
        """Why the door refused, in order."""
        return [heard.refusal.reason for heard in self.observer.heard if heard.refusal is not None]


class Client:
    """Sends octets and reads replies."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def reply(self) -> str:
        """The next reply, all of its lines; "" when the server has closed."""
        lines = b""
        while True:
            line = await self.reader.readline()
            lines += line
            if line[3:4] != b"-":
                return lines.decode()

    async def say(self, line: str) -> str:
        self.writer.write(line.encode() + b"\r\n")
        return await self.reply()

    async def begin(self, recipient: str = "to@example.com") -> None:
        for line in ("EHLO client", "MAIL FROM:<from@example.net>", f"RCPT TO:<{recipient}>", "DATA"):
            assert (await self.say(line))[0] in "23"

    async def send(self, content: bytes) -> str:
        """The content as it is, an end behind it; the reply to that."""
        self.writer.write(content)
        return await self.reply()

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


class Transport:
    """A transport that remembers what was written to it."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False
        self.aborted = False
        self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 4711) if name == "peername" else default

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def set_protocol(self, protocol: Any) -> None:
        return None

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


@asynccontextmanager
async def open_house(house: House) -> AsyncIterator[House]:
    """The door open, and stopped at the end."""
    await house.store.open()
    await house.door.start()
    try:
        yield house
    finally:
        await house.door.stop()


@asynccontextmanager
async def visit(house: House) -> AsyncIterator[Client]:
    """A client that has been greeted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
    client = Client(reader, writer)
    try:
        assert (await client.reply()).startswith("220 mx.example.org ")
        yield client
    finally:
        await client.close()


async def until_gone(house: House) -> None:
    """Wait until the door has no session left."""
    while house.door.sessions:
        await asyncio.sleep(0)
