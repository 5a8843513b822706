"""One session's filter: calls the hooks of an aiosmtpd handler with aiosmtpd's own Session and Envelope.

A hook is called once the door itself takes the command; its reply stands in the place of the door's, and
MISSING means the door's. What the hook leaves in the envelope is what goes into the queue: `filters.envelope`
alone brings it into the dialogue's transaction.

Differences from aiosmtpd, all on the side of losing and leaking nothing:

* A reply that is not 2yz refuses, also if the hook changed the envelope: no sender, recipient or message is
  taken.
* A hook that raises, returns no reply, or leaves an envelope that cannot be queued is a fault: it is logged,
  and the reply is that of `handle_exception` if it is 4yz or 5yz, else 451 4.3.0.
* 421 ends the session.
* A hook that has not returned after HOOK_MS is cancelled with its session.
* Content whose lines end in LF alone is given CRLF: `email` writes it so.

The fields `authenticated` and `auth_data` of aiosmtpd's session (a LoginPassword whose password is empty) say
who has logged in; the password itself is never given to a hook.

A message whose `rcpt_tos` is empty after `handle_DATA` has replied 2yz is discarded, and logged.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiosmtpd.smtp import MISSING, Envelope, LoginPassword, Session

from mqcd.core.address import parse_path
from mqcd.core.errors import DecodeError
from mqcd.core.ports import Clock
from mqcd.core.smtp.reply import Reply, join_lines, parse_line
from mqcd.submit.esmtp.refusal import DoorRefused, Reason
from mqcd.submit.esmtp.replies import FAULT
from mqcd.submit.esmtp.states import State
from mqcd.submit.filters.envelope import HookEnvelope
from mqcd.submit.filters.handlers import Handler
from mqcd.submit.message.received import clean_helo
from mqcd.submit.session.connections import client_address
from mqcd.submit.session.desk import Desk
from mqcd.submit.session.dialogue import Dialogue

log = logging.getLogger(__name__)

HOOK_MS = 300_000
"""Time limit of a hook: half of the client's timeout after the final dot (RFC 5321, 4.5.3.2.6)."""
_DEFAULT = Reply(code=250)


class Server:
    """What a hook gets as `server`: the part of aiosmtpd's SMTP class that hooks use."""

    def __init__(
        self, hostname: str, handler: object, transport: asyncio.Transport, client: str = ""
    ) -> None:
        """`client`: the address that a proxy has named; "" = that of the connection."""
        self.hostname = hostname
        self.event_handler = handler
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.session = Session(self.loop)
        peer: Any = transport.get_extra_info("peername")
        if client not in ("", client_address(peer)):
            peer = client, 0
        self.session.peer = peer
        self.envelope = Envelope()
        self.enable_SMTPUTF8 = True

    async def push(self, status: str | bytes) -> None:
        """Send one line ahead of the hook's reply."""
        line = status.encode() if isinstance(status, str) else status
        self.transport.write(line + b"\r\n")


class Filter:
    """The hooks of one session."""

    def __init__(
        self, handler: Handler, dialogue: Dialogue, server: Server, clock: Clock, name: str, desk: Desk
    ) -> None:
        """`name` names the session in the log."""
        self._clock = clock
        self._desk = desk
        self._called = ""
        """The hook that is running; "" = none."""
        self._since = 0
        self._handler = handler
        self._dialogue = dialogue
        self._server = server
        self._extra = {"session": name}
        self._hooked = HookEnvelope(server)

    def secured(self, transport: asyncio.Transport) -> None:
        """TLS has begun: the hooks see a new session (RFC 3207, 4.2)."""
        server = self._server
        self._server = Server(server.hostname, server.event_handler, transport, self._dialogue.client)
        connection = transport.get_extra_info("ssl_object")
        self._server.session.ssl = {"ssl_object": connection, "cipher": connection.cipher()}
        self._hooked = HookEnvelope(self._server)

    @property
    def reads_content(self) -> bool:
        """Whether a hook needs whole messages."""
        return "DATA" in self._handler.hooks

    async def command(self, line: bytes) -> bytes:
        """The reply to one command line; like `Dialogue.command`."""
        response = self._dialogue.state is State.LOGIN
        reply = self._dialogue.command(line)
        if self._dialogue.waits:
            reply = await self._desk.settle(self._dialogue, reply)
        if response:
            # A response may be the word of a command.
            return reply
        verb, _, argument = line.decode().partition(" ") if reply[:1] == b"2" else ("", "", "")
        # LMTP's EHLO is called LHLO (RFC 2033, 4.1), for aiosmtpd, too.
        verb = "EHLO" if verb.upper() == "LHLO" else verb.upper()
        step = _STEPS.get(verb)
        if step is None:
            return reply
        try:
            return await step(self, argument.strip(" \t"), reply)
        except Exception as error:
            return await self._undo(verb, error)

    async def message(self, content: bytes) -> tuple[bytes, bytes]:
        """Content and reply (b"" = the door's own) after `handle_DATA`. Raises DoorRefused."""
        hooked = self._hooked
        hooked.offer_content(content)
        try:
            status = await self._call("DATA")
            octets, reply = (b"", _DEFAULT) if status is MISSING else read_status(status)
            if reply.code < 300:
                taken = hooked.take_message(self._dialogue.begun)
                if status is MISSING and not self._dialogue.begun.recipients:
                    raise DecodeError("the filter left no recipient")
                return taken, octets
        except Exception as error:
            octets, reply = await self._explain("DATA", error)
            raise DoorRefused(Reason.FAULT, reply, octets) from error
        raise DoorRefused(Reason.FILTER, reply, octets)

    def sent(self) -> None:
        """The message was replied to."""
        self._hooked.begin()

    async def _call(self, verb: str, *arguments: object) -> Any:
        """The hook's return value; MISSING where there is no hook."""
        hook = self._handler.hooks.get(verb)
        if hook is None:
            return MISSING
        session = self._server.session
        if self._dialogue.user and not session.authenticated:
            session.authenticated = True
            login: Any = LoginPassword(self._dialogue.user.encode(), b"")
            session.auth_data = login
        self._called, self._since = verb, self._clock.monotonic()
        try:
            return await hook(self._server, session, self._server.envelope, *arguments)
        finally:
            self._called = ""

    def hangs(self, now: int) -> bool:
        """Whether a hook has taken too long at `now` (monotonic); that is logged."""
        if not self._called or now - self._since < HOOK_MS:
            return False
        text = "filter: handle_%s has not returned after %d s, its session is closed"
        log.error(text, self._called, HOOK_MS // 1000, extra=self._extra)
        return True

    async def _hello(self, argument: str, reply: bytes, extended: bool) -> bytes:
        self._hooked.begin()
        session = self._server.session
        session.extended_smtp = extended
        verb = "EHLO" if extended else "HELO"
        if verb not in self._handler.hooks:
            session.host_name = argument
            return reply
        status = await (self._call_ehlo(argument, reply) if extended else self._call("HELO", argument))
        if status is MISSING:
            session.host_name = argument
            return reply
        octets, answer = read_status(status)
        if answer.code >= 300:
            self._dialogue.refuse(Reason.FILTER, answer)
        if answer.code >= 300 or not session.host_name:
            self._dialogue.forget_hello()
        else:
            self._dialogue.helo = clean_helo(session.host_name)
        return octets

    async def _ehlo(self, argument: str, reply: bytes) -> bytes:
        return await self._hello(argument, reply, extended=True)

    async def _helo(self, argument: str, reply: bytes) -> bytes:
        return await self._hello(argument, reply, extended=False)

    async def _call_ehlo(self, argument: str, reply: bytes) -> Any:
        planned = [f"250-{line[4:]}" for line in reply.decode().splitlines()]
        if self._handler.plans_ehlo:
            responses = await self._call("EHLO", argument, [*planned, "250 HELP"])
            return responses if responses is MISSING else "\r\n".join(responses)
        for line in planned:
            await self._server.push(line)
        return await self._call("EHLO", argument)

    async def _own_or(self, verb: str, reply: bytes, *arguments: object) -> bytes:
        """The octets of the hook's reply, or `reply`."""
        status = await self._call(verb, *arguments)
        return reply if status is MISSING else read_status(status)[0]

    async def _mail(self, argument: str, reply: bytes) -> bytes:
        hooked, transaction = self._hooked, self._dialogue.begun
        hooked.begin()
        options = _options(argument)
        sender = hooked.offer_sender(transaction)
        status = await self._call("MAIL", sender, options)
        if status is MISSING:
            hooked.add_sender(sender, options)
            return reply
        octets, answer = read_status(status)
        if answer.code >= 300:
            self._dialogue.refuse(Reason.FILTER, answer)
        if answer.code >= 300 or not self._server.envelope.mail_from:
            self._dialogue.drop()
        else:
            hooked.take_sender(transaction)
        return octets

    async def _rcpt(self, argument: str, reply: bytes) -> bytes:
        hooked, transaction = self._hooked, self._dialogue.begun
        options = _options(argument)
        recipient = hooked.offer_recipient(transaction)
        octets, answer = reply, _DEFAULT
        try:
            status = await self._call("RCPT", recipient, options)
            if status is MISSING:
                hooked.add_recipient(recipient, options)
            else:
                octets, answer = read_status(status)
            if answer.code < 300:
                hooked.accept(transaction)
                return octets
        except Exception:
            hooked.refuse()
            raise
        hooked.refuse()
        turned_down = self._dialogue.turn_down(Reason.FILTER, answer, recipient)
        return turned_down if self._dialogue.state is State.CLOSED else octets

    async def _rset(self, _: str, reply: bytes) -> bytes:
        self._hooked.begin()
        return await self._own_or("RSET", reply)

    async def _noop(self, argument: str, reply: bytes) -> bytes:
        return await self._own_or("NOOP", reply, argument or None)

    async def _vrfy(self, argument: str, reply: bytes) -> bytes:
        return await self._own_or("VRFY", reply, argument.strip("<>")) if argument else reply

    async def _quit(self, _: str, reply: bytes) -> bytes:
        return await self._own_or("QUIT", reply)

    async def _undo(self, verb: str, error: Exception) -> bytes:
        """Undo the command whose hook failed; returns the reply."""
        octets, reply = await self._explain(verb, error)
        self._dialogue.refuse(Reason.FAULT, reply)
        if verb in ("EHLO", "HELO"):
            self._dialogue.forget_hello()
        elif verb == "MAIL":
            self._dialogue.drop()
        return octets

    async def _explain(self, verb: str, error: Exception) -> tuple[bytes, Reply]:
        """Log a hook's failure; the reply to it."""
        log.error("filter failed in handle_%s", verb, exc_info=error, extra=self._extra)
        handle = getattr(self._handler.instance, "handle_exception", None)
        if handle is not None:
            try:
                # aiosmtpd's documentation has it as a function, its code as a coroutine.
                status = handle(error)
                octets, reply = read_status(await status if inspect.isawaitable(status) else status)
            except Exception:
                log.exception("filter failed in handle_exception", extra=self._extra)
            else:
                if reply.code >= 400:
                    return octets, reply
        return FAULT.encode(), FAULT


_STEPS: dict[str, Callable[[Filter, str, bytes], Awaitable[bytes]]] = {
    "EHLO": Filter._ehlo,
    "HELO": Filter._helo,
    "MAIL": Filter._mail,
    "RCPT": Filter._rcpt,
    "RSET": Filter._rset,
    "NOOP": Filter._noop,
    "VRFY": Filter._vrfy,
    "QUIT": Filter._quit,
}


def read_status(status: object) -> tuple[bytes, Reply]:
    """The octets and meaning of what a hook returns: one reply, of one line or several.

    Raises DecodeError for a text that is no reply, TypeError for what is no text.
    """
    octets = status.encode() if isinstance(status, str) else status
    if not isinstance(octets, bytes):
        raise TypeError(f"a hook returns its reply as text, not {type(status).__name__}")
    parts = octets.split(b"\r\n")
    lines = [parse_line(part) for part in parts]
    codes = {code for code, _, _ in lines}
    last = [is_last for _, is_last, _ in lines]
    whole = len(codes) == 1 and last == [False] * (len(lines) - 1) + [True]
    if not whole or any(b"\r" in part or b"\n" in part for part in parts):
        raise DecodeError(f"not one SMTP reply: {octets[:80]!r}")
    return octets + b"\r\n", join_lines(codes.pop(), [text for _, _, text in lines])


def _options(argument: str) -> list[str]:
    """The parameters of MAIL and RCPT, upper case, as aiosmtpd gives them."""
    _, _, path = argument.partition(":")
    return parse_path(path, bare=True)[1].upper().split()
