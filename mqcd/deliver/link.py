"""One connection to one host: octets between the network and the dialogue, within time limits.

Guarantees: a broken or slow peer never raises here once the link stands; the dialogue is told, and its
state and outcomes say what it means. Settings read: deliver/client timeout, mindatarate, sendQUIT, waitQUIT.

Time limits: one `timeout` for each reply; while content goes out and until the final dot is answered it
is longer by the time that the content takes at `mindatarate`. The answer to the final dot has
`DOT_PATIENCE` times as long: giving up there makes duplicates (RFC 5321, 4.5.3.2.6, asks for 10 minutes).
"""

from __future__ import annotations

import asyncio

from mqcd.config.settings import ClientSettings
from mqcd.core.errors import ConnectFailed
from mqcd.core.model import Phase
from mqcd.core.ports import Clock, Connection, Content, Dialer
from mqcd.deliver.dialogue import Dialogue
from mqcd.deliver.exchange import Manners, State

CHUNK = 64 * 1024
"""Octets of content read and sent at a time."""
DOT_PATIENCE = 10


class Link:
    """A connection and its dialogue. It is guarded by a `Sweep` (see `deadline` and `expire`)."""

    def __init__(
        self, settings: ClientSettings, clock: Clock, manners: Manners, host: str, address: str
    ) -> None:
        self.host = host
        self.address = address
        self.source = ""
        self.connect_ms = 0
        self.tls = ""
        self.transactions = 0
        self.deadline = 0
        self.dialogue = Dialogue(manners)
        self._settings = settings
        self._clock = clock
        self._connection: Connection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._timed_out = False
        self._patience_ms = 0

    # ------------------------------------------------------------ opening

    async def open(self, dialer: Dialer, port: int, source: str = "") -> None:
        """Connect, from `source` ("" = any). Raises ConnectFailed, also when that takes too long."""
        started = self._clock.monotonic()
        self._dialling = asyncio.current_task()
        self._patience()
        try:
            connection = await dialer.dial(self.address, port, source)
        except asyncio.CancelledError:
            if not self._timed_out or self._dialling is None:
                raise
            self._dialling.uncancel()
            raise ConnectFailed("no connection in time") from None
        finally:
            self._dialling = None
        self._connection = connection
        self.source = connection.source_addr
        self.connect_ms = self._clock.monotonic() - started

    async def greet(self, verify: bool = False) -> State:
        """Greeting, EHLO and TLS until the server is ready or will not do. Raises ConnectFailed: TLS."""
        dialogue, connection = self.dialogue, self._open()
        self._patience()
        while dialogue.state not in (State.READY, State.ENDED):
            if dialogue.state is State.TLS:
                await connection.start_tls(self.host, verify)
                self.tls = connection.tls
                dialogue.tls_started()
            self.send()
            await self.receive()
        return dialogue.state

    # ------------------------------------------------------------ talking

    def send(self) -> None:
        """Send what the dialogue has to say."""
        out = self.dialogue.take()
        if out and self._connection is not None:
            self._connection.write(out)

    async def receive(self) -> State:
        """Hand the next octets, or the end of the connection, to the dialogue, and send its answer."""
        dialogue = self.dialogue
        try:
            data = await self._open().read()
        except ConnectFailed as error:
            return dialogue.lost(self._reason(str(error)))
        if not data:
            return dialogue.lost("server closed the connection")
        state = dialogue.receive(data)
        self.send()
        return state

    async def send_content(self, content: Content) -> bool:
        """Send everything but the final dot; False when the connection broke. StoreUnavailable passes."""
        connection, dialogue = self._open(), self.dialogue
        self._patience(content.size)
        while chunk := await content.read(CHUNK):
            connection.write(dialogue.content(chunk))
            try:
                await connection.drain()
            except ConnectFailed as error:
                dialogue.lost(self._reason(str(error)))
                return False
        return True

    def finish(self, size: int, last_octets: bytes = b"") -> None:
        """Send the final dot, behind `last_octets` of the content where that saves a packet."""
        self._open().write(last_octets + self.dialogue.finish())
        self._patience(size, DOT_PATIENCE)

    def await_reply(self) -> None:
        """Start the clock for one reply."""
        self._patience()

    async def quit(self) -> None:
        """End in good manners, as the settings have them, and close."""
        dialogue = self.dialogue
        if dialogue.state is State.READY and self._settings.send_quit:
            dialogue.quit()
            self.send()
        self._patience()
        while dialogue.state is State.WAITING and self._settings.wait_quit:
            await self.receive()
        self.close()

    def close(self) -> None:
        """Close at once."""
        self.deadline = 0
        if self._connection is not None:
            self._connection.close()

    # ------------------------------------------------------------ time

    def expire(self) -> None:
        """The deadline has passed."""
        self._timed_out = True
        if self._connection is not None:
            self._connection.close()
        elif self._dialling is not None:
            self._dialling.cancel()

    @property
    def phase(self) -> Phase:
        """How far it came."""
        return Phase.CONNECT if self._connection is None else self.dialogue.phase

    def _patience(self, size: int = 0, factor: int = 1) -> None:
        rate = self._settings.mindatarate
        transfer_ms = size * 8000 // rate if rate else 0
        self._patience_ms = self._settings.timeout * factor + transfer_ms
        self.deadline = self._clock.monotonic() + self._patience_ms

    def _reason(self, text: str) -> str:
        return f"no reply within {self._patience_ms / 1000:g} s" if self._timed_out else text

    def _open(self) -> Connection:
        if self._connection is None:
            raise ConnectFailed("not connected")
        return self._connection
