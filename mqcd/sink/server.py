"""The sink as a server: sockets, timers and TLS around the dialogue.

`start` binds and serves until `Sink.close`. One asyncio.Protocol a connection, no tasks and no
streams, so that the sink is no bottleneck for what is measured against it.

* `on_received` is called for each message just before its 250. If it raises OSError, the message
  is answered 451 and not counted.
* The sink has no idle timeout. A connection stalled in mid-content (stall:data) is not read, so
  the client's going is not noticed: it is held until `close`.
* The clock of messages and the timer for `slow` are given, so tests need not wait.

Fails with OSError when the port cannot be bound.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from mqcd.core.value import value
from mqcd.net.clock import SystemClock
from mqcd.net.listening import ProtocolServer, bind
from mqcd.sink.dialogue import Dialogue
from mqcd.sink.outputs import (
    Close,
    Deliver,
    Flood,
    Limits,
    Output,
    Pause,
    Received,
    Refused,
    Report,
    Send,
    Silence,
    StartTls,
    Trickle,
)
from mqcd.sink.rules import Rules

# Many clients connect at once in a load test; the kernel caps this at its own limit.
_BACKLOG = 4096

CallLater = Callable[[float, Callable[[], None]], object]
"""Calls the second argument after so many seconds, as `loop.call_later` does."""


@value
class SinkSettings:
    """Where the sink listens and how it behaves."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 = any free one, see `Sink.port`."""
    rules: Rules = field(default_factory=Rules)
    limits: Limits = field(default_factory=Limits)
    tls: ssl.SSLContext | None = None
    """Offer STARTTLS with this context; None = do not."""


@dataclass(slots=True)
class Counters:
    """Counters since the start."""

    connections: int = 0
    messages: int = 0
    recipients: int = 0
    """Of the messages taken."""
    refused: int = 0
    """Recipients refused by a rule."""
    octets: int = 0
    """Content of the messages taken."""


class Sink:
    """A running sink. Made by `start`."""

    def __init__(
        self,
        settings: SinkSettings,
        *,
        now_ms: Callable[[], int],
        call_later: CallLater,
        on_received: Callable[[Received], object],
        on_refused: Callable[[Refused], object],
    ) -> None:
        self.settings = settings
        self.counters = Counters()
        self.now_ms = now_ms
        self.call_later = call_later
        self._on_received = on_received
        self._on_refused = on_refused
        self._connections: set[_Connection] = set()
        self._server: ProtocolServer | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        if self._server is None:
            raise RuntimeError("the sink is closed")
        return self._server.port

    async def close(self) -> None:
        """Stop listening and cut all connections. May be called twice."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()
        for connection in tuple(self._connections):
            connection.cut()
        await self._empty.wait()

    async def listen(self) -> None:
        """Bind and serve; for `start`."""
        sockets = await bind(self.settings.host, self.settings.port)
        self._server = ProtocolServer(sockets, lambda: _Connection(self), SystemClock())
        self._server.listen(_BACKLOG)

    def opened(self, connection: "_Connection") -> None:
        self.counters.connections += 1
        self._connections.add(connection)
        self._empty.clear()

    def closed(self, connection: "_Connection") -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def take(self, message: Received) -> bool:
        """Hand a message over; False if it could not be kept."""
        try:
            self._on_received(message)
        except OSError:
            return False
        counters = self.counters
        counters.messages += 1
        counters.recipients += len(message.recipients)
        counters.octets += len(message.content)
        return True

    def refuse(self, refused: Refused) -> None:
        self.counters.refused += 1
        self._on_refused(refused)


async def start(
    settings: SinkSettings,
    *,
    now_ms: Callable[[], int],
    on_received: Callable[[Received], object] | None = None,
    on_refused: Callable[[Refused], object] | None = None,
    call_later: CallLater | None = None,
) -> Sink:
    """Start a sink in the running event loop.

    `now_ms` gives Unix time in ms. `call_later` is the timer behind `slow`, by default the event
    loop's. Raises OSError when the address cannot be bound.
    """
    sink = Sink(
        settings,
        now_ms=now_ms,
        call_later=call_later or asyncio.get_running_loop().call_later,
        on_received=on_received or _ignore,
        on_refused=on_refused or _ignore,
    )
    await sink.listen()
    return sink


def _ignore(_event: object) -> None:
    """The default callback."""


class _Connection(asyncio.Protocol):
    """Performs one dialogue's outputs on one transport."""

    __slots__ = (
        "_blocked",
        "_dialogue",
        "_early",
        "_finished",
        "_flood",
        "_sink",
        "_transport",
        "_upgrade",
        "_waiting",
    )

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._transport: asyncio.Transport
        self._dialogue: Dialogue
        # Outputs behind a pause, and while one lasts also those of input that came meanwhile.
        self._waiting: list[Output] | None = None
        self._blocked = False
        # Nothing more is to be read: closed, or silent in mid-content.
        self._finished = False
        # Octets sent repeatedly.
        self._flood = b""
        self._upgrade: asyncio.Task[None] | None = None
        # Input under TLS before the upgrade's task has finished.
        self._early: bytearray | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A TCP server's transports are of this kind; uvloop's only behave so.
        self._transport = cast(asyncio.Transport, transport)
        self._sink.opened(self)
        settings = self._sink.settings
        self._dialogue = Dialogue(
            limits=settings.limits,
            rules=settings.rules,
            peer=_peer(self._transport.get_extra_info("peername")),
            tls_offered=settings.tls is not None,
        )
        self._perform(self._dialogue.connect())

    def data_received(self, data: bytes) -> None:
        if self._finished:
            return
        if self._early is not None:
            self._early += data
            return
        outputs = self._dialogue.receive(data, at_ms=self._sink.now_ms())
        if self._waiting is not None:
            self._waiting.extend(outputs)
        else:
            self._perform(outputs)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finished = True
        self._flood = b""
        self._waiting = None
        if self._upgrade is not None:
            self._upgrade.cancel()
        self._sink.closed(self)

    def pause_writing(self) -> None:
        # A client that sends commands and reads no replies must not fill the memory.
        self._blocked = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._blocked = False
        self._pour()
        if self._waiting is None and not self._finished:
            self._transport.resume_reading()

    def cut(self) -> None:
        """End the connection at once, unsent replies thrown away."""
        self._transport.abort()

    def _perform(self, outputs: list[Output]) -> bool:
        """Perform the outputs in order; False if a pause keeps some of them back."""
        for done, output in enumerate(outputs, 1):
            match output:
                case Pause(wait_ms):
                    self._wait(wait_ms, outputs[done:])
                    return False
                case Trickle(octets, wait_ms) if octets:
                    rest = (Trickle(octets[1:], wait_ms), *outputs[done:])
                    self._wait(wait_ms, [Send(octets[:1]), *rest])
                    return False
                case Deliver(message, taken, failed, wait_ms) if wait_ms:
                    answer = taken if self._sink.take(message) else failed
                    return self._perform([Trickle(answer, wait_ms), *outputs[done:]])
            self._act(output)
        return True

    def _wait(self, wait_ms: int, outputs: list[Output]) -> None:
        """Perform these after so many milliseconds, and read nothing until then."""
        self._waiting = outputs
        self._transport.pause_reading()
        self._sink.call_later(wait_ms / 1000, self._go_on)

    def _pour(self) -> None:
        """Send a part of what has no end, unless the client does not keep up; one a turn of the loop."""
        if self._flood and not self._blocked:
            self._transport.write(self._flood)
            asyncio.get_running_loop().call_soon(self._pour)

    def _go_on(self) -> None:
        outputs, self._waiting = self._waiting, None
        if outputs is None:
            return
        if self._perform(outputs) and not (self._blocked or self._finished):
            self._transport.resume_reading()

    def _act(self, output: Output) -> None:
        match output:
            case Send(octets):
                self._transport.write(octets)
            case Deliver(message, taken, failed):
                self._transport.write(taken if self._sink.take(message) else failed)
            case Report(refused):
                self._sink.refuse(refused)
            case Flood(octets):
                self._flood = octets
                self._pour()
            case Close():
                self._finished = True
                self._transport.close()
            case Silence(reading=False):
                self._finished = True
                self._transport.pause_reading()
            case StartTls():
                # The handshake reads all further input.
                self._transport.pause_reading()
                self._upgrade = asyncio.get_running_loop().create_task(self._start_tls())

    async def _start_tls(self) -> None:
        context = self._sink.settings.tls
        if context is None:
            raise RuntimeError("STARTTLS was obeyed without a TLS context")
        # From here on, without a turn of the loop between, all that is received came under TLS.
        early = self._early = bytearray()
        try:
            upgraded = await asyncio.get_running_loop().start_tls(
                self._transport, self, context, server_side=True
            )
        except OSError:
            # ssl.SSLError too: the client speaks no TLS, or left. It gets no reply.
            upgraded = None
        if upgraded is None or upgraded.is_closing():
            # A connection that ends within the handshake is not always notified of its end.
            self._transport.abort()
            self.connection_lost(None)
            return
        self._transport = upgraded
        self._early = None
        self._dialogue.tls_started()
        if early:
            self.data_received(bytes(early))


def _peer(name: object) -> str:
    """The socket's peer name as text; "" for sockets that have none."""
    if not isinstance(name, tuple):
        return ""
    host, port = name[0], name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
