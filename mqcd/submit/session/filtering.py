"""One session's filter: calls the hooks of an aiosmtpd handler with aiosmtpd's own Session and Envelope.

A hook is called once the door itself takes the command; its reply stands in the place of the door's, and
MISSING means the door's. For each command and message: `_offer` sets up session and envelope as aiosmtpd
does, `_judge` calls the hook and returns its `Verdict`, and `_apply` alone brings that into the dialogue:

| verdict of | `Accepts` | `Accepts`, its `left` is None | `DoorRefused` |
|---|---|---|---|
| EHLO, HELO | the name is the hook's | the name is forgotten | the same; `Dialogue.retract` |
| MAIL | the sender is the hook's | the message is dropped | the same; `Dialogue.retract` |
| RCPT | sender and recipients are the hook's | | the recipient is taken back; `Dialogue.retract` |
| RSET, NOOP, VRFY, QUIT | the same, of a message begun | | the command has been done; it counts as refused |
| DATA | the same, and the content | | raised: `session.intake` refuses the message |

Differences from aiosmtpd, all on the side of losing and leaking nothing:

* A 4yz or 5yz reply refuses, also if the hook changed the envelope: no sender, recipient or message is taken.
* A hook that raises, returns no final reply, or leaves an envelope that cannot be queued is a fault: it is
  logged, and the reply is that of `handle_exception` if it is 4yz or 5yz, else 451 4.3.0.
* 421 ends the session.
* A hook that has not returned after HOOK_MS is cancelled with its session. A client that leaves cancels none.
* Content whose lines end in LF alone is given CRLF: `email` writes it so.

The fields `authenticated` and `auth_data` of aiosmtpd's session (a LoginPassword whose password is empty) say
who has logged in; the password itself is never given to a hook.

A message whose `rcpt_tos` is empty after `handle_DATA` has replied 2yz is discarded, and logged.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from typing import Any

from aiosmtpd.smtp import MISSING, Envelope, LoginPassword, Session

from mqcd.core.address import parse_path
from mqcd.core.errors import DecodeError
from mqcd.core.ports import Clock
from mqcd.submit.esmtp.refusal import DoorRefused, Reason
from mqcd.submit.esmtp.replies import FAULT
from mqcd.submit.filters.envelope import NULL, HookEnvelope, Left
from mqcd.submit.filters.handlers import CALLED, Handler
from mqcd.submit.filters.verdict import Accepts, Verdict, read_status
from mqcd.submit.message.received import clean_helo
from mqcd.submit.session.connections import client_address
from mqcd.submit.session.dialogue import Dialogue
from mqcd.submit.session.work import Work

log = logging.getLogger(__name__)

HOOK_MS = 300_000
"""Time limit of a hook: half of the client's timeout after the final dot (RFC 5321, 4.5.3.2.6)."""
_NAMES = ("EHLO", "HELO")
_RETRACTED = (*_NAMES, "MAIL", "RCPT")
"""What a refusal undoes."""


class Server:
    """What a hook gets as `server`: the part of aiosmtpd's SMTP class that hooks use."""

    def __init__(self, hostname: str, handler: object, transport: asyncio.Transport, client: str) -> None:
        """`client`: the address that the connection has, or a proxy has named."""
        self.hostname = hostname
        self.event_handler = handler
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.session = Session(self.loop)
        peer: Any = transport.get_extra_info("peername")
        if client != client_address(peer):
            peer = client, 0
        self.session.peer = peer
        self.envelope = Envelope()
        self.enable_SMTPUTF8 = True
        self.pushed: list[bytes] = []
        """Lines ahead of the reply of the hook that is running."""

    async def push(self, status: str | bytes) -> None:
        """Send one line ahead of the hook's reply, with it: what that has another code for is not sent."""
        self.pushed.append((status.encode() if isinstance(status, str) else status) + b"\r\n")


class Filter:
    """The hooks of one session."""

    def __init__(
        self, handler: Handler, dialogue: Dialogue, transport: asyncio.Transport, clock: Clock, work: Work
    ) -> None:
        """`work` runs the hooks."""
        self._clock = clock
        self._work = work
        self._called = ""
        """The hook that is running; "" = none."""
        self._since = 0
        self._handler = handler
        self._dialogue = dialogue
        self._extra = {"session": dialogue.session}
        self._connect(transport)

    def _connect(self, transport: asyncio.Transport) -> None:
        host, client = self._dialogue.rules.host, self._dialogue.client
        self._server = Server(host, self._handler.instance, transport, client)
        self._hooked = HookEnvelope(self._server)

    def secured(self, transport: asyncio.Transport) -> None:
        """TLS has begun: the hooks see a new session (RFC 3207, 4.2)."""
        self._connect(transport)
        connection = transport.get_extra_info("ssl_object")
        self._server.session.ssl = {"ssl_object": connection, "cipher": connection.cipher()}

    @property
    def reads_content(self) -> bool:
        """Whether a hook needs whole messages."""
        return "DATA" in self._handler.hooks

    def hangs(self, now: int) -> bool:
        """Whether a hook has taken too long at `now` (monotonic); that is logged."""
        if not self._called or now - self._since < HOOK_MS:
            return False
        text = "filter: handle_%s has not returned after %d s, its session is closed"
        log.error(text, self._called, HOOK_MS // 1000, extra=self._extra)
        return True

    # ------------------------------------------------------------ a command, a message

    async def command(self, line: bytes, reply: bytes) -> bytes:
        """The reply to a command line that the door has replied to with `reply`."""
        if reply[:1] != b"2":
            return reply
        # A line that is no UTF-8 is refused (`Dialogue.command`), and so has not come here.
        word, _, argument = line.decode().partition(" ")
        # LMTP's EHLO is called LHLO (RFC 2033, 4.1), for aiosmtpd, too.
        verb, argument = word.upper().replace("LHLO", "EHLO"), argument.strip(" \t")
        if verb not in CALLED or (verb == "VRFY" and not argument):
            return reply
        return self._apply(verb, await self._judge(verb, self._offer(verb, argument), reply))

    async def message(self, content: bytes) -> tuple[bytes, bytes]:
        """Content and reply (b"" = the door's own) after `handle_DATA`. Raises DoorRefused."""
        self._server.envelope.content = self._server.envelope.original_content = content
        verdict = await self._judge("DATA", (), b"")
        if isinstance(verdict, DoorRefused):
            raise verdict
        return verdict.content, self._apply("DATA", verdict)

    def sent(self) -> None:
        """The message was replied to."""
        self._hooked.begin()

    def _offer(self, verb: str, argument: str) -> tuple[Any, ...]:
        """Prepare session and envelope for a hook; return the hook's arguments that follow these.

        The door has taken the command: so after MAIL and RCPT a message is begun, and the last recipient is
        that of this RCPT.
        """
        match verb:
            case "EHLO" | "HELO":
                self._hooked.begin()
                self._server.session.extended_smtp = verb == "EHLO"
                return (argument,)
            case "MAIL":
                self._hooked.begin()
                self._server.envelope.smtp_utf8 = self._dialogue.begun.parameters.smtputf8
                return self._dialogue.begun.sender or NULL, _options(argument)
            case "RCPT":
                return self._dialogue.begun.recipients[-1], _options(argument)
            case "RSET":
                self._hooked.begin()
            case "NOOP":
                return (argument or None,)
            case "VRFY":
                return (argument.strip("<>"),)
        return ()

    # ------------------------------------------------------------ what the hook decides

    async def _judge(self, verb: str, arguments: tuple[Any, ...], reply: bytes) -> Verdict:
        """What the hook decides; changes nothing but aiosmtpd's session and envelope."""
        try:
            self._hooked.offer()
            status = await self._call(verb, arguments, reply)
            if status is MISSING:
                self._default(verb, arguments)
                return self._accepts(verb, reply)
            octets, answer = read_status(status)
            if pushed := self._server.pushed:
                octets = b"".join((*(each for each in pushed if each[:3] == octets[:3]), octets))
            if answer.code < 300:
                return self._accepts(verb, octets)
            return DoorRefused(Reason.FILTER, answer, octets)
        except Exception as error:
            return await self._explain(verb, error)

    async def _call(self, verb: str, arguments: tuple[Any, ...], reply: bytes) -> Any:
        """The hook's return value; MISSING where there is no hook."""
        hook = self._handler.hooks.get(verb)
        if hook is None:
            return MISSING
        server, session = self._server, self._server.session
        if self._dialogue.user and not session.authenticated:
            session.authenticated = True
            login: Any = LoginPassword(self._dialogue.user.encode(), b"")
            session.auth_data = login
        server.pushed.clear()
        listed = verb == "EHLO" and self._handler.plans_ehlo
        if verb == "EHLO":
            planned = [f"250-{line[4:]}" for line in reply.decode().splitlines()]
            if listed:
                arguments = *arguments, [*planned, "250 HELP"]
            else:
                server.pushed += [f"{line}\r\n".encode() for line in planned]
        status = await self._run(verb, hook(server, session, server.envelope, *arguments))
        return "\r\n".join(status) if listed and status is not MISSING else status

    async def _run(self, name: str, hook: Awaitable[Any]) -> Any:
        """Its result; meanwhile `hangs` watches it. Raises CancelledError where the session is cut, even if
        the hook overlooks that, and RuntimeError where the hook alone is cancelled."""
        self._called, self._since = name, self._clock.monotonic()
        try:
            result = await hook
        except asyncio.CancelledError as error:
            if self._work.cancelled:
                raise
            raise RuntimeError("cancelled, though its session is not") from error
        finally:
            self._called = ""
        if self._work.cancelled:
            raise asyncio.CancelledError
        return result

    def _default(self, verb: str, arguments: tuple[Any, ...]) -> None:
        """What aiosmtpd does where there is no hook, or it returns MISSING."""
        envelope = self._server.envelope
        if verb in _NAMES:
            self._server.session.host_name = arguments[0]
        elif verb == "MAIL":
            envelope.mail_from = arguments[0]
            envelope.mail_options.extend(arguments[1])
        elif verb == "RCPT":
            envelope.rcpt_tos.append(arguments[0])
            envelope.rcpt_options.extend(arguments[1])

    def _accepts(self, verb: str, octets: bytes) -> Accepts:
        """With what the hook has left. Raises DecodeError, TypeError."""
        hooked, transaction = self._hooked, self._dialogue.transaction
        if verb in _NAMES:
            name = self._server.session.host_name
            return Accepts(octets=octets, left=clean_helo(name) if name else None)
        if transaction is None:
            return Accepts(octets=octets)
        if verb == "MAIL":
            return Accepts(octets=octets, left=hooked.left_sender())
        left = hooked.left(transaction, offered=verb == "RCPT")
        if verb != "DATA":
            return Accepts(octets=octets, left=left)
        if not octets and not left.kept and not left.recipients:
            raise DecodeError("the filter left no recipient")
        return Accepts(octets=octets, left=left, content=hooked.content())

    async def _explain(self, verb: str, error: Exception) -> DoorRefused:
        """Log a hook's failure; what it comes to."""
        log.error("filter failed in handle_%s", verb, exc_info=error, extra=self._extra)
        handle = getattr(self._handler.instance, "handle_exception", None)
        if handle is not None:
            try:
                # aiosmtpd's documentation has it as a function, its code as a coroutine.
                status = handle(error)
                if inspect.isawaitable(status):
                    status = await self._run("exception", status)
                octets, reply = read_status(status)
            except Exception:
                log.exception("filter failed in handle_exception", extra=self._extra)
            else:
                if reply.code >= 400:
                    return DoorRefused(Reason.FAULT, reply, octets)
        return DoorRefused(Reason.FAULT, FAULT)

    # ------------------------------------------------------------ what becomes of it

    def _apply(self, verb: str, verdict: Verdict) -> bytes:
        """Bring a verdict into the dialogue; the reply's octets."""
        dialogue = self._dialogue
        if isinstance(verdict, DoorRefused):
            self._hooked.take_back()
            if verb in _NAMES:
                self._server.session.host_name = None
            refuse = dialogue.retract if verb in _RETRACTED else dialogue.refuse
            octets = refuse(verdict.reason, verdict.reply)
            # The limit on refused recipients has a reply of its own.
            return verdict.octets if octets == verdict.reply.encode() else octets
        if isinstance(verdict.left, Left):
            verdict.left.enter(dialogue.begun)
        elif verdict.left is not None:
            dialogue.helo = verdict.left
        elif verb == "MAIL":
            dialogue.drop()
        elif verb in _NAMES:
            dialogue.forget_hello()
        return verdict.octets


def _options(argument: str) -> list[str]:
    """The parameters of MAIL and RCPT, upper case, as aiosmtpd gives them."""
    _, _, path = argument.partition(":")
    return parse_path(path, bare=True)[1].upper().split()
