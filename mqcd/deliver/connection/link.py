"""One connection to one host: octets between the network and the SMTP client, within time limits.

Guarantees: a broken or slow peer never raises here once the link stands; `SmtpClient.lost` is called, and its
state and outcomes have the result. Settings read: deliver/client timeout, mindatarate, sendQUIT, waitQUIT.

Time limits: each reply has `PATIENCE` times `timeout` for its phase, from when the one before it came; with
`timeout` at its default these are the limits of RFC 5321, 4.5.3.2. A reply that arrives octet by octet gains
no time. While content goes out, and until its end is answered, the limit is longer by the time that the
content takes at `mindatarate`; without that each chunk has a limit of its own.

All that comes before mail has `WHOLE` times `timeout` in all. So has a transaction up to the final dot, with
`timeout` / `PER_TIMEOUT` for each recipient, and the time that the content takes at `mindatarate`, or at
`LEAST_RATE` without it; the replies to the dot have their own limit and the same for recipients.
So a peer that answers each time just before a limit holds a connection for minutes, not hours.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from mqcd.config.settings import ClientSettings, TlsPolicy
from mqcd.core.errors import ConnectFailed
from mqcd.core.model import Phase
from mqcd.core.ports import Clock, Connection, Dialer, TlsTerms
from mqcd.deliver.smtp.client import SmtpClient
from mqcd.deliver.smtp.exchange import Options
from mqcd.deliver.smtp.states import WAITING, State

CHUNK = 64 * 1024
"""Octets of content read and sent at a time."""
PATIENCE: Mapping[Phase, int] = {
    Phase.CONNECT: 1,
    Phase.GREETING: 5,
    Phase.EHLO: 5,
    Phase.TLS: 1,
    Phase.AUTH: 5,
    Phase.MAIL: 5,
    Phase.RCPT: 5,
    Phase.DATA: 2,
    # Giving up there makes duplicates.
    Phase.DOT: 10,
}
"""How many times `timeout` each phase may wait for a reply."""
GONE = ("4.4.2", "4.5.0")
"""Statuses for a server that closed the connection, or does not speak SMTP."""
BLOCK_PATIENCE = 3
"""Patience for the content, from DATA's reply to its end, in multiples of `timeout`."""


WHOLE = 15
"""Multiple of `timeout` that the handshake may take in all; likewise a transaction, besides recipients and
content."""
PER_TIMEOUT = 10
"""Recipients for which a transaction may take one `timeout` more."""
LEAST_RATE = 8000
"""Assumed rate of content, bits per second, where `mindatarate` is not set."""


class Link:
    """A connection and its SMTP client. It is guarded by a `Sweep` (see `deadline` and `expire`)."""

    def __init__(
        self,
        settings: ClientSettings,
        clock: Clock,
        options: Options,
        host: str,
        address: str,
        session: str = "",
    ) -> None:
        """`session` names the connection in the log."""
        self.session = session
        self.host = host
        self.address = address
        self.source = ""
        self.connect_ms = 0
        self.opened = 0
        """When the connection stood, monotonic ms."""
        self.tls = ""
        self.transactions = 0
        self.deadline = 0
        self.content_begun = False
        """Some of the message under way has gone out."""
        self.smtp = SmtpClient(options)
        self._settings = settings
        self._clock = clock
        self._connection: Connection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._timed_out = False
        self._patience_ms = 0
        self._end = 0
        """Deadline of everything under way, monotonic ms; 0 = none."""
        self._end_ms = 0
        """Length of that limit, ms."""
        self._recipients = 0
        self._replies = 0
        self._sending = False
        self._options = options

    # ------------------------------------------------------------ opening

    async def open(self, dialer: Dialer, port: int, source: str = "") -> None:
        """Connect, from `source` ("" = any). Raises ConnectFailed, also when that takes too long."""
        started = self._clock.monotonic()
        self._dialling = asyncio.current_task()
        self._ends_in(self._settings.timeout * WHOLE)
        self._patience(PATIENCE[Phase.CONNECT])
        try:
            connection = await dialer.dial(self.address, port, source)
        except asyncio.CancelledError:
            if not self._timed_out or self._dialling is None:
                raise
            self._dialling.uncancel()
            raise ConnectFailed("connection timed out") from None
        finally:
            self._dialling = None
        self._connection = connection
        self.source = connection.source_addr
        self.opened = self._clock.monotonic()
        self.connect_ms = self.opened - started

    async def greet(self) -> State:
        """The handshake, until the server is ready or the session ended. Raises ConnectFailed: TLS."""
        smtp = self.smtp
        if smtp.secured:
            await self._start_tls()
        self.await_reply()
        while smtp.state not in (State.READY, State.ENDED):
            if smtp.state is State.TLS:
                await self._start_tls()
                smtp.tls_started()
            self.send()
            await self.receive()
        return smtp.state

    async def _start_tls(self) -> None:
        connection, options = self._open(), self._options
        self._patience(PATIENCE[Phase.TLS])
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
            self.await_reply()
        return state

    def send_content(self, chunk: bytes, last: bool, size: int) -> None:
        """Send the next chunk of a content of `size` octets, with its end when it is the `last`."""
        first, self.content_begun = not self._sending, True
        self._sending = not last
        self._open().write(self.smtp.content(chunk, last))
        if last:
            self._ends_in(self._for_recipients(PATIENCE[Phase.DOT]) + self._transfer_ms(size))
            self._patience(PATIENCE[Phase.DOT], size)
        elif first or not self._settings.mindatarate:
            self._patience(BLOCK_PATIENCE, size)

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

    async def listen(self) -> State:
        """Process unsolicited octets, if any; returns the state. Called before a command whose reply they
        could be mistaken for. Does not wait.
        """
        return self.smtp.state if self._open().quiet else await self.receive()

    def start(self, recipients: int, size: int) -> None:
        """Send the beginning of a transaction with a content of `size` octets."""
        self._recipients = recipients
        self._ends_in(self._for_recipients(WHOLE) + self._transfer_ms(size, LEAST_RATE))
        self._sending = self.content_begun = False
        self.send()
        self.await_reply()

    def rest(self) -> None:
        """Nothing is under way."""
        self.deadline = self._end = 0

    def await_reply(self) -> None:
        """Start the time limit of the next reply; that of a content under way stays."""
        self._replies = self.smtp.replies
        if not self._sending:
            self._patience(PATIENCE[self.smtp.phase])

    @property
    def sends_quit(self) -> bool:
        """Whether the session is to end with QUIT."""
        return self._settings.send_quit

    async def quit(self) -> None:
        """End with QUIT, as the settings say, and close."""
        smtp = self.smtp
        self._end = 0
        if smtp.state is State.READY and self.sends_quit:
            smtp.quit()
            self.send()
        self._patience(1)
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

    def _patience(self, times: int, size: int = 0) -> None:
        self._patience_ms = self._settings.timeout * times + self._transfer_ms(size)
        self.deadline = self._clock.monotonic() + self._patience_ms
        if 0 < self._end < self.deadline:
            self.deadline = self._end

    def _ends_in(self, ms: int) -> None:
        self._end_ms = ms
        self._end = self._clock.monotonic() + ms

    def _for_recipients(self, times: int) -> int:
        timeout = self._settings.timeout
        return timeout * times + timeout * self._recipients // PER_TIMEOUT

    def _transfer_ms(self, size: int, least: int = 0) -> int:
        rate = self._settings.mindatarate or least
        return size * 8000 // rate if rate else 0

    def _reason(self, text: str) -> str:
        if not self._timed_out:
            return text
        if 0 < self._end <= self._clock.monotonic():
            return f"not done within {self._end_ms / 1000:g} s"
        return f"no reply within {self._patience_ms / 1000:g} s"

    def _open(self) -> Connection:
        if self._connection is None:
            raise ConnectFailed("not connected")
        return self._connection
