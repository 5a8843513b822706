"""One connection to one host: octets between the network and the SMTP client, within time limits.

Guarantees: a broken or slow peer never raises here once the link stands; `SmtpClient.lost` is called, and its
state and outcomes have the result. Settings read: deliver/client timeout, mindatarate, sendQUIT, waitQUIT.

Time limits are those of `timers`.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from mqcd.config.settings import ClientSettings, TlsPolicy
from mqcd.core.errors import ConnectFailed
from mqcd.core.model import Attempt, Phase
from mqcd.core.ports import Clock, Connection, Dialer, TlsTerms
from mqcd.core.value import value
from mqcd.deliver.connection.timers import Limits
from mqcd.deliver.routing.policy import Hop
from mqcd.deliver.smtp.client import SmtpClient
from mqcd.deliver.smtp.exchange import Options
from mqcd.deliver.smtp.states import WAITING, State

CHUNK = 64 * 1024
"""Octets of content read and sent at a time."""
GONE = ("4.4.2", "4.5.0")
"""Statuses for a server that closed the connection, or does not speak SMTP."""


@value
class LinkView:
    """A connection at one moment, as operators see it."""

    session: str
    """Its name in the log; "" before it stands."""
    state: str
    """connecting, working or idle."""
    since_ms: int
    """How long it stands, or is tried."""
    tls: str
    """TLS version; "" = none."""
    messages: int
    """Transactions so far."""
    destination: str
    zone: str
    remote_host: str
    remote_addr: str
    source_addr: str


@dataclass(slots=True, eq=False, repr=False)
class Link:
    """A connection and its SMTP client. It is guarded by a `Sweep` (see `deadline` and `expire`)."""

    _settings: ClientSettings
    _clock: Clock
    _options: Options
    host: str
    address: str
    session: str = ""
    """Names the connection in the log."""
    source: str = ""
    connect_ms: int = 0
    opened: int = 0
    """When the connection stood, monotonic ms."""
    tls: str = ""
    transactions: int = 0
    deadline: int = 0
    content_begun: bool = False
    """Some of the message under way has gone out."""
    content_ended: bool = False
    """All of it has, with its end: until its verdicts are handed in, it is possibly delivered."""
    smtp: SmtpClient = field(init=False)
    _limits: Limits = field(init=False)
    _connection: Connection | None = None
    _dialling: asyncio.Task[None] | None = None
    _timed_out: bool = False
    _replies: int = 0

    def __post_init__(self) -> None:
        self.smtp, self._limits = SmtpClient(self._options), Limits(self._settings)

    # ------------------------------------------------------------ opening

    async def open(self, dialer: Dialer, port: int, source: str = "") -> None:
        """Connect, from `source` ("" = any). Raises ConnectFailed, also when that takes too long."""
        started = self._clock.monotonic()
        self._dialling = asyncio.current_task()
        self.deadline = self._limits.opening(started)
        try:
            connection = await dialer.dial(self.address, port, source)
        except asyncio.CancelledError:
            # A recall or a stop may have come in the same turn: its cancellation is left.
            if not self._timed_out or self._dialling is None or self._dialling.uncancel():
                raise
            raise ConnectFailed("connection timed out") from None
        finally:
            self._dialling = None
        self._connection = connection
        self.source = connection.source_addr
        self.opened = self._clock.monotonic()
        self.connect_ms = self.opened - started

    def adopt(self, connection: Connection) -> None:
        """Use a connection that stands already, and whose server has yet to greet."""
        self._connection = connection
        self.source, self.tls = connection.source_addr, connection.tls
        self.opened = self._clock.monotonic()

    async def greet(self) -> State:
        """The handshake, until the server is ready or the session ended. Raises ConnectFailed: TLS."""
        smtp = self.smtp
        if smtp.secured:
            await self._start_tls()
        self._await_reply(self._clock.monotonic())
        while smtp.state not in (State.READY, State.ENDED):
            if smtp.state is State.TLS:
                await self._start_tls()
                smtp.tls_started()
                self._await_reply(self._clock.monotonic())
            self.send()
            await self.receive()
        return smtp.state

    async def _start_tls(self) -> None:
        connection, options = self._open(), self._options
        self.deadline = self._limits.reply(Phase.TLS, self._clock.monotonic())
        terms = TlsTerms(
            verify=options.checked or options.tls is TlsPolicy.VERIFY,
            trust=options.trust,
            certificate=options.certificate,
            key=options.key,
        )
        try:
            await connection.start_tls(self.host, terms)
        except ConnectFailed as error:
            if not self._timed_out:
                raise
            raise ConnectFailed(self._reason(str(error))) from error
        self.tls = connection.tls

    # ------------------------------------------------------------ talking

    def send(self) -> None:
        out = self.smtp.take()
        if out and self._connection is not None:
            self._connection.write(out)

    async def receive(self) -> State:
        """Hand the next octets, or the end of the connection, to the SMTP client, and send its answer."""
        smtp = self.smtp
        try:
            data = await self._open().read()
        except ConnectFailed as error:
            return smtp.lost(self._reason(str(error)))
        if not data:
            return smtp.lost("server closed the connection")
        state = smtp.receive(data)
        self.send()
        if state in WAITING and smtp.replies != self._replies:
            self._await_reply(self._clock.monotonic())
        return state

    def send_content(self, chunk: bytes, last: bool, size: int) -> None:
        """Send the next chunk of a content of `size` octets, with its end when it is the `last`."""
        first, self.content_begun, self.content_ended = not self.content_begun, True, last
        self._open().write(self.smtp.content(chunk, last))
        now = self._clock.monotonic()
        if last:
            self.deadline = self._limits.end_of_content(size, now)
        elif first or not self._settings.mindatarate:
            self.deadline = self._limits.chunk(size, now)

    async def drain(self) -> None:
        """Wait until more may be sent; `SmtpClient.lost` is called when the connection broke."""
        connection = self._open()
        try:
            await connection.drain()
        except ConnectFailed as error:
            await self._last_words(connection)
            self.smtp.lost(self._reason(str(error)))

    async def _last_words(self, connection: Connection) -> None:
        """Read what the server sent before it closed in mid-content: it has the reason."""
        with contextlib.suppress(ConnectFailed):
            if data := await connection.read():
                self.smtp.receive(data)

    @property
    def quiet(self) -> bool:
        """False where the server has sent something unasked, or has closed the connection. Then `receive`
        returns at once; call it before a command is sent, whose reply that could be mistaken for."""
        return self._open().quiet

    def start(self, recipients: int, size: int, now: int) -> None:
        """Send the beginning of a transaction with a content of `size` octets, at `now` (monotonic)."""
        self._limits.transaction(recipients, size, now)
        self.send()
        self._await_reply(now)

    def rest(self) -> None:
        """Nothing is under way."""
        self.content_begun = self.content_ended = False
        self.deadline = self._limits.rest()

    def _await_reply(self, now: int) -> None:
        """Start the time limit of the next reply; that of a content under way stays."""
        self._replies = self.smtp.replies
        if self.content_ended or not self.content_begun:
            self.deadline = self._limits.reply(self.smtp.phase, now)

    @property
    def sends_quit(self) -> bool:
        """Whether the session is to end with QUIT."""
        return self._settings.send_quit

    async def quit(self) -> None:
        """End with QUIT, as the settings say, and close."""
        smtp = self.smtp
        if smtp.state is State.READY and self.sends_quit:
            smtp.quit()
            self.send()
        self.deadline = self._limits.quit(self._clock.monotonic())
        while smtp.state is State.QUIT and self._settings.wait_quit:
            await self.receive()
        self.close()

    def leave(self) -> None:
        """Close a session that never carried mail: with QUIT where the server listens (RFC 5321,
        4.1.1.10)."""
        connection, end = self._connection, self.smtp.end
        if connection is not None and end is not None and end.status not in GONE and self.sends_quit:
            connection.write(b"QUIT\r\n")
        self.close()

    def close(self) -> None:
        self.deadline = 0
        if self._connection is not None:
            self._connection.close()

    def attempt(self, hop: Hop, phase: Phase, took: int = 0, at: int = 0) -> Attempt:
        """The details of an attempt over it that ended in that phase, `at` that time after `took` ms."""
        return Attempt(
            destination=hop.destination.name,
            zone=hop.policy.zone,
            phase=phase,
            remote_host=self.host,
            remote_addr=self.address,
            source_addr=self.source,
            tls=self.tls,
            connect_ms=self.connect_ms if self.transactions <= 1 else 0,
            attempt_ms=took,
            at=at,
            session=self.session,
        )

    # ------------------------------------------------------------ time

    def expire(self) -> None:
        """Called when the deadline has passed."""
        self._timed_out = True
        if self._connection is not None:
            self._connection.close()
        elif self._dialling is not None:
            self._dialling.cancel()

    @property
    def phase(self) -> Phase:
        """The phase reached."""
        return Phase.CONNECT if self._connection is None else self.smtp.phase

    def _reason(self, text: str) -> str:
        return self._limits.reason(self._clock.monotonic()) if self._timed_out else text

    def _open(self) -> Connection:
        if self._connection is None:
            raise ConnectFailed("not connected")
        return self._connection
