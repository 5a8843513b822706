"""Next hops of the tests: the sink, in a thread of its own, and peers that follow a script."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import threading
import time
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from mqcd.net.clock import SystemClock
from mqcd.net.listening import ProtocolServer
from mqcd.sink.outputs import Received, Refused
from mqcd.sink.rules import Rules
from mqcd.sink.server import Sink, SinkSettings, start
from tests.e2e.kit.waiting import DEADLINE, Board

Result = TypeVar("Result")


class LoopThread:
    """An event loop in a thread, for servers that run while the test waits."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Have `work` done there, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE)
        self.loop.close()


class Receiver:
    """mqcd's sink, keeping in memory what it takes. Its port is its own also while it is down."""

    def __init__(
        self, thread: LoopThread, rules: Iterable[str] = (), host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.mail: Board[Received] = Board()
        self.refused: Board[Refused] = Board()
        self.host = host
        self._thread = thread
        # Bound and not listening: connections are refused, and no other program is given the port.
        self._held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind((host, port))
        self.port: int = self._held.getsockname()[1]
        self._sink = self._start(rules)

    def _start(self, rules: Iterable[str]) -> Sink:
        return self._thread.call(
            start(
                SinkSettings(host=self.host, port=self.port, rules=Rules.parse(rules)),
                now_ms=lambda: time.time_ns() // 1_000_000,
                on_received=self.mail.put,
                on_refused=self.refused.put,
            )
        )

    def follow(self, *rules: str) -> None:
        """Cut all connections and go by other rules from now on, on the same port."""
        self.down()
        self._sink = self._start(rules)

    def to(self, recipient: str, *, seconds: float = DEADLINE) -> Received:
        """The first message for this recipient, now or later."""
        return self.mail.first(
            lambda mail: recipient in mail.recipients, f"mail to {recipient}", seconds=seconds
        )

    def count(self, recipient: str) -> int:
        """How many messages for this recipient have come."""
        return sum(mail.recipients.count(recipient) for mail in self.mail.all())

    def down(self) -> None:
        """Cut all connections and refuse new ones, until `follow`."""
        self._thread.call(self._sink.close())

    def close(self) -> None:
        self.down()
        self._held.close()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """How a peer behaves."""

    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    """Recipient to the reply that refuses it."""
    dot: str = "250 2.0.0 Ok"
    """The reply to the final dot."""
    wait_at_data: bool = False
    """Hold back the 354 until `go_on`."""
    wait_after: int | None = None
    """Read so many octets of content, then no more until `go_on`."""
    wait_at_dot: bool = False
    """Hold back the reply to the final dot until `go_on`."""


class Peer:
    """A server for scripted faults that the sink has no rules for. Receive buffers are small on purpose."""

    def __init__(self, thread: LoopThread, script: Script) -> None:
        self.contents: Board[bytes] = Board()
        """Each message that came whole, dot-stuffing undone."""
        self.stalled: Board[str] = Board()
        """Each time that it waits for `go_on`."""
        self._thread = thread
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.port: int = self._listener.getsockname()[1]
        self._may_go_on = thread.call(_event())
        self._open: set[asyncio.StreamWriter] = set()
        self.most_open = 0
        """The most connections at once."""
        self._server = thread.call(self._listen())

    def go_on(self) -> None:
        """Wait no more, now and later."""
        self._thread.loop.call_soon_threadsafe(self._may_go_on.set)

    def close(self) -> None:
        self._thread.call(self._close())

    async def _listen(self) -> ProtocolServer:
        def protocol() -> asyncio.BaseProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=65536), self._serve)

        server = ProtocolServer([self._listener], protocol, SystemClock())
        server.listen(100)
        return server

    async def _close(self) -> None:
        await self._server.close()
        self._may_go_on.set()
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _stall(self, where: str) -> None:
        if not self._may_go_on.is_set():
            self.stalled.put(where)
            await self._may_go_on.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        self.most_open = max(self.most_open, len(self._open))
        try:
            await self._converse(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left; whether it may is for the test to say
        finally:
            self._open.discard(writer)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(reply: str) -> None:
            writer.write(reply.encode() + b"\r\n")

        say("220 peer.test ESMTP")
        while line := (await reader.readline()).decode().rstrip("\r\n"):
            verb = line.upper().split()[0]
            if verb == "RCPT":
                say(self._script.refused.get(line[line.index("<") + 1 : line.index(">")], "250 2.1.5 Ok"))
            elif verb == "DATA":
                if self._script.wait_at_data:
                    await self._stall("before 354")
                say("354 Go ahead")
                self.contents.put(await self._content(reader))
                if self._script.wait_at_dot:
                    await self._stall("at the dot")
                say(self._script.dot)
            elif verb == "QUIT":
                say("221 2.0.0 Bye")
                return
            else:
                say("250 2.0.0 Ok")

    async def _content(self, reader: asyncio.StreamReader) -> bytes:
        octets = b""
        if self._script.wait_after is not None:
            octets = await reader.readexactly(self._script.wait_after)
            await self._stall("in content")
        parts = [octets]
        while (line := await reader.readline()) != b".\r\n":
            if not line:
                raise asyncio.IncompleteReadError(b"", None)
            parts.append(line)
        return (b"\r\n" + b"".join(parts)).replace(b"\r\n.", b"\r\n")[2:]


async def _event() -> asyncio.Event:
    return asyncio.Event()
