"""`QueueHandler`: an aiosmtpd handler that puts each message into a durable queue.

    controller = Controller(QueueHandler("/var/spool/mq"))

* `handle_DATA` replies 250 once the message is synced to disk, and 4yz or 5yz otherwise. A client that
  disconnects meanwhile does not interrupt the commit.
* The queue is opened on the controller's loop by the first MAIL, or by `open(loop)` from another thread,
  which raises what is wrong. `close()` closes it, before `Controller.stop()`; later mail gets 451. A program
  that is killed loses nothing.
* Clients on this machine, authenticated clients and `clients` may send anywhere; all others to `domains`.
* The directory belongs to one process at a time. Without `deliver` mail waits until `mqcd run` or another
  QueueHandler with `deliver` opens the same directory.

Replies: relay denied 554 5.7.1 (see `submit.policy`); bad addresses 553; NUL or bare CR in the content 554
5.6.0, bare LF becomes CRLF; maxhops 554 5.4.6; too many recipients 452 4.5.3; a queue that takes nothing or
cannot be opened 451 4.3.1; any other failure 451 4.3.0, and the log has it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, Session
from aiosmtpd.smtp import Envelope as SmtpEnvelope

from mqcd.config.load import defaults, load
from mqcd.core.address import check_address, normal_domain
from mqcd.core.errors import DecodeError, MqcdError, StoreUnavailable
from mqcd.core.model import Body, Envelope, Submission
from mqcd.core.observing.null_observer import NullObserver
from mqcd.core.ports import Clock, Observer
from mqcd.core.queueing.spid import format_spid
from mqcd.core.smtp.marks import marks_of
from mqcd.core.smtp.reply import Refused
from mqcd.embed.queue import Queue, to_its_end
from mqcd.embed.wishes import SmtpRelay
from mqcd.net.clock import SystemClock
from mqcd.submit.checks.listed import NetworkList
from mqcd.submit.esmtp.transaction import MAX_ENVELOPE
from mqcd.submit.message.body import HopCounter
from mqcd.submit.message.received import clean_helo, date_text, protocol, received_header
from mqcd.submit.networks import LOOPBACK
from mqcd.submit.policy.relay import RelayPolicy, own_domain
from mqcd.submit.session.connections import client_address

log = logging.getLogger(__name__)

_NULL = "<>"
MAX_HOPS = 50
MAX_RECIPIENTS = 1000
_UNAVAILABLE = "451 4.3.1 The queue cannot take mail now, try again later"
_FAULT = "451 4.3.0 Local error, try again later"


class QueueHandler:
    """Enqueues the mail that an aiosmtpd server accepts."""

    def __init__(
        self,
        root: str | Path,
        *,
        domains: Iterable[str] = (),
        clients: Iterable[str] = (),
        deliver: bool = False,
        config: str | Path | None = None,
        hostname: str = "",
        received: bool = True,
        observer: Observer | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`root` is the directory of the queue, what --var names for the command line.

        `domains`: where all clients may send. `clients`: networks that may send anywhere. `config`: a
        configuration file for queue, deliver and report; None = defaults. `hostname`: this host in headers
        and EHLO; "" = the system's. `received`: add a Received header. `observer` is called with each event.
        Raises BadConfiguration.
        """
        name = hostname or socket.gethostname()
        var = Path(root).absolute()
        self._root = var
        self._settings = (
            defaults(var=var, hostname=name)
            if config is None
            else load(Path(config), var=var, hostname=name).settings
        )
        self._policy = RelayPolicy(
            networks=NetworkList([*LOOPBACK, *map(ipaddress.ip_network, clients)]),
            domains=frozenset(map(normal_domain, domains)),
            own_domain=own_domain(name),
        )
        self._deliver = deliver
        self._received = received
        self._observer = observer or NullObserver()
        self._clock = clock or SystemClock()
        self._queue: Queue | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Task[Queue] | None = None
        self._closed = False
        self._commits: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ opening and closing

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the queue on `loop`, which runs in another thread; `Controller.loop` once it is started.

        Raises StoreBusy, StoreDamaged and StoreUnavailable.
        """
        self._from_thread(loop, self.open_here())

    def close(self) -> None:
        """Close the queue from another thread than its loop's; harmless if it is not open."""
        if self._loop is not None:
            self._from_thread(self._loop, self.close_here())

    async def open_here(self) -> None:
        """Open the queue on the running loop; harmless if it is open there. Raises like `open`."""
        self._closed = False
        await self._opened()

    async def close_here(self) -> None:
        """Close the queue on the loop that it is open on, once all commits have ended; also where it is
        cancelled meanwhile."""
        opening, self._opening = self._opening, None
        self._closed = True
        if opening is not None:
            await to_its_end(self._close(opening))

    async def _close(self, opening: asyncio.Task[Queue]) -> None:
        await asyncio.wait([opening])
        if self._commits:
            await asyncio.wait(self._commits)
        if opening.exception() is None:
            await opening.result().close()
        self._loop = None

    @staticmethod
    def _from_thread(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, loop)
        future.result()

    async def _opened(self) -> Queue:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise StoreUnavailable("the queue is closed")
        if self._opening is not None and self._loop is not loop:
            raise RuntimeError("the queue is open on another event loop")
        if self._opening is None:
            self._loop = loop
            self._opening = loop.create_task(self._open())
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except Exception:
            if self._opening is opening:
                self._opening = None
            raise

    async def _open(self) -> Queue:
        queue = Queue(
            self._root,
            SmtpRelay() if self._deliver else None,
            settings=self._settings,
            observer=self._observer,
            clock=self._clock,
        )
        await queue.open()
        return queue

    # ------------------------------------------------------------ hooks

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: SmtpEnvelope, address: str, mail_options: list[str]
    ) -> str:
        """Take the reverse-path, once the queue is open."""
        try:
            await self._opened()
            if address not in ("", _NULL):
                check_address(address)
        except DecodeError:
            return "553 5.1.7 Bad sender address syntax"
        except MqcdError as error:
            log.warning("the queue cannot be opened: %s", error)
            return _UNAVAILABLE
        if not address.isascii() and not envelope.smtp_utf8:
            return "553 5.6.7 Non-ASCII address needs SMTPUTF8"
        envelope.mail_from = address
        envelope.mail_options.extend(mail_options)
        return "250 2.1.0 Ok"

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: SmtpEnvelope, address: str, rcpt_options: list[str]
    ) -> str:
        """Take a forward-path that this client may send to."""
        recipient = address
        if address.lower() == "postmaster":
            recipient = self._policy.complete(address)
        try:
            check_address(recipient)
        except DecodeError:
            return "553 5.1.3 Bad recipient address syntax"
        if not recipient.isascii() and not envelope.smtp_utf8:
            return "553 5.6.7 Non-ASCII address needs SMTPUTF8"
        if denied := self._policy.refusal(address, self._trusts(session)):
            return str(denied)
        if len(envelope.rcpt_tos) >= MAX_RECIPIENTS or sum(map(len, envelope.rcpt_tos)) >= MAX_ENVELOPE:
            return "452 4.5.3 Too many recipients, send the rest separately"
        envelope.rcpt_tos.append(recipient)
        envelope.rcpt_options.extend(rcpt_options)
        return "250 2.1.5 Ok"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: SmtpEnvelope) -> str:
        """Enqueue the message; 250 once it is durable."""
        content = (envelope.original_content or b"").replace(b"\r\n", b"\n")
        if b"\r" in content or b"\0" in content:
            return "554 5.6.0 Bare CR or NUL in the message"
        content = content.replace(b"\n", b"\r\n")
        if HopCounter().feed(content) >= MAX_HOPS:
            return "554 5.4.6 Too many hops, the message is looping"
        try:
            queue = await self._opened()
            spid = queue.reserve(len(envelope.rcpt_tos) > 1)
            commit = asyncio.get_running_loop().create_task(
                queue.submit(self._submission(server, session, envelope, content, spid))
            )
            self._commits.add(commit)
            commit.add_done_callback(self._commits.discard)
            await asyncio.shield(commit)
        except Refused as error:
            return str(error.reply)
        except MqcdError as error:
            log.warning("message not taken: %s", error)
            return _UNAVAILABLE
        return f"250 2.0.0 Ok: queued as {format_spid(spid)}"

    async def handle_exception(self, error: Exception) -> str:
        """A failure of any hook is temporary."""
        log.error("a command failed because of a fault", exc_info=error)
        return _FAULT

    # ------------------------------------------------------------ the message

    def _trusts(self, session: Session) -> bool:
        """Whether a client may send anywhere. A peer without an address is on this machine."""
        client = client_address(session.peer)
        return not client or bool(session.authenticated) or self._policy.trusts(client)

    def _submission(
        self, server: SMTP, session: Session, envelope: SmtpEnvelope, content: bytes, spid: int
    ) -> Submission:
        now = self._clock.now()
        sender = "" if envelope.mail_from in (None, _NULL) else str(envelope.mail_from)
        addresses = (sender, *envelope.rcpt_tos)
        # A subclass may have changed them.
        for address in addresses[0 if sender else 1 :]:
            check_address(address)
        marks = marks_of(content)
        made = Envelope(
            spid=spid,
            sender=sender,
            received=now,
            body=Body.EIGHT if "BODY=8BITMIME" in envelope.mail_options else Body.SEVEN,
            smtputf8=envelope.smtp_utf8 or not all(map(str.isascii, addresses)),
            client=client_address(session.peer),
            user=_user(session),
            labels=marks.labels(),
            message_id=marks.message_id,
        )
        header = self._header(server, session, envelope, made) if self._received else b""
        return Submission(envelope=made, recipients=tuple(envelope.rcpt_tos), content=header + content)

    def _header(self, server: SMTP, session: Session, envelope: SmtpEnvelope, made: Envelope) -> bytes:
        recipients = envelope.rcpt_tos
        tls, user = session.ssl is not None, bool(session.authenticated)
        return received_header(
            helo=clean_helo(session.host_name or "unknown"),
            client=made.client or "127.0.0.1",
            host=server.hostname,
            protocol=protocol(session.extended_smtp, made.smtputf8, tls, user),
            spid=made.spid,
            recipient=recipients[0] if len(recipients) == 1 else "",
            date=date_text(made.received // 1000),
        )


def _user(session: Session) -> str:
    """The login in the `auth_data` of aiosmtpd's own mechanisms; "" for any other."""
    login = getattr(session.auth_data, "login", None) if session.authenticated else None
    text = login.decode("utf-8", "replace") if isinstance(login, bytes) else login
    return text if isinstance(text, str) and text.isprintable() else ""
