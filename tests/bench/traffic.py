"""A source and a receiver in the bench's own process, which know when each message went in and came out.

The source keeps its connections and sends each message in two writes: the envelope, then the content. The
receiver takes everything at once and answers at once. Both are small, so that the server gets the
processors; where the number of messages a second is all that counts, Postfix's smtp-source and smtp-sink
take less.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

_STAMP = b"X-Sent: "
_END = b"\r\n.\r\n"


@dataclass(frozen=True, slots=True)
class Mail:
    """One message to be sent."""

    recipients: tuple[str, ...]
    octets: int = 4096
    header: bytes = b""
    """A line of its header, without its end."""
    at: float = 0
    """When the server is to send it on, as `time.monotonic` counts; 0 = at once."""


class Receiver:
    """A next hop that takes all mail; `waits` are the times from source to here, ms, in order of arrival.

    The time of mail that was to be sent on later begins then.
    """

    def __init__(self, *, only: bytes = b"", pause: float = 0) -> None:
        """`only`: what mail whose times are of interest has in it. `pause`: seconds before each reply to a
        message."""
        self.only = only
        self.pause = pause
        self.waits: list[float] = []
        self._wanted = 0
        self._enough = asyncio.Event()

    def took(self, sent_ns: int) -> None:
        """A message is here, with its final dot."""
        self.waits.append((time.monotonic_ns() - sent_ns) / 1e6)
        if len(self.waits) >= self._wanted:
            self._enough.set()

    async def have(self, count: int) -> None:
        """Return once so many messages are here; give up after a minute."""
        self._wanted = count
        if len(self.waits) < count:
            self._enough.clear()
            try:
                await asyncio.wait_for(self._enough.wait(), 60)
            except TimeoutError:
                raise SystemExit(f"only {len(self.waits)} of {count} messages came") from None


class _Taking(asyncio.Protocol):
    """One connection to a receiver."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._octets = bytearray()
        self._in_content = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        # Not of this class at run time: uvloop's transports are not.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(b"220 receiver.bench.example ESMTP\r\n")

    def data_received(self, data: bytes) -> None:
        """Answer what is whole."""
        self._octets += data
        while self._content() if self._in_content else self._command():
            pass

    def _content(self) -> bool:
        end = self._octets.find(_END)
        if end < 0:
            return False
        start = self._octets.index(_STAMP) + len(_STAMP)
        if self._receiver.only in self._octets:
            self._receiver.took(int(self._octets[start : self._octets.index(b"\r\n", start)]))
        del self._octets[: end + len(_END)]
        self._in_content = False
        reply = b"250 2.0.0 Ok\r\n"
        if self._receiver.pause:
            asyncio.get_running_loop().call_later(self._receiver.pause, self._say, reply)
        else:
            self._transport.write(reply)
        return True

    def _say(self, reply: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(reply)

    def _command(self) -> bool:
        line, found, _ = self._octets.partition(b"\r\n")
        if not found:
            return False
        del self._octets[: len(line) + 2]
        verb = bytes(line[:4]).upper()
        if verb == b"DATA":
            self._in_content = True
            self._transport.write(b"354 Go on\r\n")
        elif verb == b"QUIT":
            self._transport.write(b"221 Bye\r\n")
            self._transport.close()
        elif verb == b"EHLO":
            self._transport.write(b"250-receiver.bench.example\r\n250-8BITMIME\r\n250 PIPELINING\r\n")
        else:
            self._transport.write(b"250 2.0.0 Ok\r\n")
        return True


async def receive(receiver: Receiver, addresses: Iterable[str], port: int) -> list[asyncio.Server]:
    """Take mail on each of these addresses."""
    loop = asyncio.get_running_loop()
    return [await loop.create_server(lambda: _Taking(receiver), each, port) for each in addresses]


async def stay_silent(address: str, port: int) -> asyncio.Server:
    """Accept connections, and say nothing on them."""
    return await asyncio.get_running_loop().create_server(asyncio.Protocol, address, port)


class Session:
    """One connection of the source."""

    async def open(self, port: int) -> None:
        """Connect and greet."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        await self._reply(b"220")
        self._writer.write(b"EHLO source.bench.example\r\n")
        await self._reply(b"250")

    async def send(self, mail: Mail) -> bytes:
        """Send one message; gives the reply to its content."""
        hold = max(math.ceil(mail.at - time.monotonic()), 1) if mail.at else 0
        commands = [b"MAIL FROM:<sender@example.org>" + (b" HOLDFOR=%d" % hold if hold else b"")]
        commands += [b"RCPT TO:<%b>" % each.encode() for each in mail.recipients]
        self._writer.write(b"\r\n".join([*commands, b"DATA", b""]))
        for _ in commands:
            await self._reply(b"250")
        await self._reply(b"354")
        self._writer.write(_content(mail, time.monotonic_ns() + hold * 10**9))
        return await self._reply(b"250")

    async def close(self) -> None:
        """Take leave."""
        self._writer.write(b"QUIT\r\n")
        await self._reply(b"221")
        self._writer.close()

    async def _reply(self, code: bytes) -> bytes:
        line = await self._reader.readline()
        while line[3:4] == b"-":
            line = await self._reader.readline()
        if not line.startswith(code):
            raise SystemExit(f"expected {code!r}, the server said {line!r}")
        return line


def _content(mail: Mail, stamp: int) -> bytes:
    header = mail.header + b"\r\n" if mail.header else b""
    head = b"Subject: measured\r\n%b%b%d\r\n\r\n" % (header, _STAMP, stamp)
    line = b"x" * 76 + b"\r\n"
    body = line * max((mail.octets - len(head)) // len(line), 1)
    return head + body[:-2] + _END


async def send(port: int, mails: Iterable[Mail], sessions: int, rate: float = 0) -> float:
    """Send all of it over so many connections; how long that took, seconds.

    `rate`: messages a second, spread evenly; 0 = as fast as they are taken.
    """
    began = time.monotonic()
    source = enumerate(mails)

    async def work() -> None:
        session = Session()
        await session.open(port)
        for number, mail in source:
            if rate and (early := began + number / rate - time.monotonic()) > 0:
                await asyncio.sleep(early)
            await session.send(mail)
        await session.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(work())
    return time.monotonic() - began
