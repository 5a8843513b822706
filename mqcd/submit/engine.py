"""One connection: aiosmtpd's SMTP protocol with a command loop of our own.

What is replaced, and why (figures of aiosmtpd 1.4.6):

* `SMTP.__init__` inspects the members of its class for each connection, 80 us of it: here nothing is
  looked up at run time, the commands are the table in `dialogue`.
* The command loop reads line by line through a StreamReader, remakes its timer for each, and replies
  to each with a drain: here all lines that have come are answered in one write, and `Door` looks over
  all deadlines once in a while.
* DATA gathers the whole message in memory: here `intake` takes it by chunks.
* End-of-file and a lost connection cancel the session's task, a commit under way with it: here they
  end only its reading, so that what was sent is answered and what is being committed is committed.

Logging: one line per session at its end (level debug), faults with their traceback; never contents.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, cast

from aiosmtpd.smtp import SMTP

from mqcd.core.errors import ConnectFailed
from mqcd.core.ports import Refusal
from mqcd.core.reply import Reply
from mqcd.submit.dialogue import Dialogue, Then
from mqcd.submit.intake import FAULT, Intake, Peer, take_message
from mqcd.submit.policy import DoorRefused, Reason
from mqcd.submit.wire import BadLine, Interrupted, Wire

log = logging.getLogger(__name__)

_TURN = 64
"""Commands answered in a row before other sessions get their turn."""
_TOO_EARLY = Reply(code=421, status="4.5.0", text="Content sent ahead of 354, closing")
_FAULT_CLOSING = Reply(code=421, status="4.3.0", text="Local error, closing")


class Host(Protocol):
    """What a session asks of the door that it came in by."""

    intake: Intake

    def admit(self, session: Session, client: str) -> None:
        """Note a new session. Raises DoorRefused when it may not stay."""

    def leave(self, session: Session, client: str) -> None:
        """Its connection is gone."""

    def refused(self, refusal: Refusal) -> None:
        """Something was refused."""


class Session(SMTP):
    """One client at the door."""

    transport: asyncio.Transport | None
    client: str
    """IP address of the client."""
    wire: Wire

    def __init__(self, host: Host, number: int, loop: asyncio.AbstractEventLoop) -> None:
        # Past SMTP.__init__ on purpose, see above; no reader, since `Wire` is ours.
        asyncio.StreamReaderProtocol.__init__(self, cast("asyncio.StreamReader", None), loop=loop)
        self.loop = loop
        self.transport = None
        self.task: asyncio.Task[None] | None = None
        """The command loop; None when the session was not admitted."""
        self._host = host
        self._number = number
        self._out: list[bytes] = []
        self._unread_replies: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come: greet it and start, or send it away."""
        asyncio.StreamReaderProtocol.connection_made(self, transport)
        self.transport = cast("asyncio.Transport", transport)
        self.client = client_address(transport.get_extra_info("peername"))
        intake = self._host.intake
        self.wire = Wire(self.loop, self.transport, intake.clock)
        self._dialogue = Dialogue(intake.rules, intake.listener, self.client, self._host.refused)
        try:
            self._host.admit(self, self.client)
        except DoorRefused as refusal:
            self._out.append(self._dialogue.refuse(refusal.reason, refusal.reply))
            self._write()
            self._close()
            return
        self._out.append(intake.rules.greeting)
        self._write()
        self.task = self.loop.create_task(self._handle_client())

    def data_received(self, data: bytes) -> None:
        """Octets came."""
        self.wire.feed_data(data)

    def eof_received(self) -> bool:
        """The client sends no more, but may still read: what it sent is answered first."""
        self.wire.feed_eof()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone. A commit under way goes on; its reply has no reader."""
        self.wire.fail(ConnectFailed("the client closed the connection"))
        self.resume_writing()
        self._host.leave(self, self.client)

    def pause_writing(self) -> None:
        """The client does not read its replies."""
        self._unread_replies = self.loop.create_future()

    def resume_writing(self) -> None:
        """It reads again, or is gone."""
        if self._unread_replies is not None:
            self._unread_replies.set_result(None)
            self._unread_replies = None

    def check_deadline(self, now: int, timeout: int, reply: Reply) -> None:
        """End the session when the client has owed us something for `timeout` ms at `now` (monotonic).

        A client that does not even take the final reply loses its connection after as long again.
        """
        since = self.wire.waiting_since
        if not since or now - since < timeout:
            return
        if self._unread_replies is not None or self.transport is None or self.transport.is_closing():
            self.cut()
            return
        self.wire.fail(Interrupted(Reason.TIMEOUT, reply))

    def interrupt(self, reply: Reply) -> None:
        """End the session as soon as it is not committing a message."""
        self.wire.fail(Interrupted(Reason.CLOSED, reply))
        if self._unread_replies is not None:
            self.cut()

    def cut(self) -> None:
        """Drop the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    async def _handle_client(self) -> None:
        try:
            await self._converse()
        except ConnectFailed as error:
            log.debug("session %x: %s", self._number, error)
        except Interrupted as stop:
            self._out.append(self._dialogue.refuse(stop.reason, stop.reply))
        except Exception:
            log.exception("session %x: closed because of a fault", self._number)
            self._out.append(self._dialogue.refuse(Reason.FAULT, _FAULT_CLOSING))
        finally:
            self._write()
            self._close()
            log.debug("session %x from %s: %d messages", self._number, self.client, self._dialogue.messages)

    async def _converse(self) -> None:
        wire = self.wire
        dialogue = self._dialogue
        turn = 0
        while True:
            try:
                line = wire.next_line()
            except BadLine as error:
                dialogue.then = Then.COMMAND
                self._out.append(dialogue.bad(Reply(code=500, status="5.5.2", text=str(error))))
            else:
                if line is None:
                    await self._flush()
                    await wire.more()
                    continue
                self._answer(line)
            if dialogue.then is Then.CONTENT:
                await self._take_content()
            if dialogue.then is Then.CLOSE:
                return
            turn += 1
            if turn % _TURN == 0:
                await self._flush()
                await asyncio.sleep(0)

    def _answer(self, line: bytes) -> None:
        try:
            self._out.append(self._dialogue.command(line))
        except Exception:
            log.exception("session %x: a command failed because of a fault", self._number)
            self._dialogue.transaction = None
            self._dialogue.then = Then.COMMAND
            self._out.append(self._dialogue.refuse(Reason.FAULT, FAULT))

    async def _take_content(self) -> None:
        dialogue = self._dialogue
        if self.wire.held:
            # What lies behind DATA already is content that would be read as commands, had DATA been
            # refused, or commands that would be read as content (RFC 2920, 3.1: DATA ends a group).
            self._out.pop()
            dialogue.then = Then.CLOSE
            self._out.append(dialogue.refuse(Reason.SEQUENCE, _TOO_EARLY))
            return
        await self._flush()
        peer = Peer(session=f"{self._number:x}", client=self.client)
        self._out.append(await take_message(self._host.intake, dialogue, self.wire, peer))
        dialogue.sent()
        # Accepted is answered at once, whatever the client has sent behind it.
        await self._flush()

    async def _flush(self) -> None:
        self._write()
        if self._unread_replies is not None:
            self.wire.waiting_since = self._host.intake.clock.monotonic() or 1
            await self._unread_replies
            self.wire.waiting_since = 0

    def _write(self) -> None:
        if self._out:
            if self.transport is not None and not self.transport.is_closing():
                self.transport.write(b"".join(self._out))
            self._out.clear()

    def _close(self) -> None:
        self.wire.waiting_since = self._host.intake.clock.monotonic() or 1
        if self.transport is not None:
            self.transport.close()


def client_address(peername: object) -> str:
    """The IP address in a socket's peer name: IPv4 inside IPv6 as IPv4, without a scope."""
    if not isinstance(peername, tuple):
        return ""
    host = str(peername[0]).partition("%")[0]
    return host[7:] if host.startswith("::ffff:") and "." in host else host
