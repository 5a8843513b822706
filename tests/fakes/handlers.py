"""aiosmtpd handlers that tests name as filters."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from email import message_from_bytes
from typing import Any

from aiosmtpd.smtp import MISSING


class Recording:
    """Accepts all, does what aiosmtpd asks of each hook, and records its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def _record(self, verb: str, session: Any, envelope: Any, *arguments: Any) -> None:
        seen = (session.host_name, session.extended_smtp, session.peer[0], session.ssl)
        sent = (envelope.mail_from, list(envelope.mail_options), list(envelope.rcpt_tos), envelope.smtp_utf8)
        self.calls.append((verb, seen, sent, envelope.content, envelope.original_content, arguments))

    async def handle_EHLO(
        self, server: Any, session: Any, envelope: Any, hostname: str, responses: list[str]
    ) -> list[str]:
        self._record("EHLO", session, envelope, hostname, responses[0], responses[-1])
        session.host_name = hostname
        return responses

    async def handle_HELO(self, server: Any, session: Any, envelope: Any, hostname: str) -> str:
        self._record("HELO", session, envelope, hostname)
        session.host_name = hostname
        return f"250 {server.hostname}"

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        self._record("MAIL", session, envelope, address, options)
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        self._record("RCPT", session, envelope, address, options)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self._record("DATA", session, envelope)
        return "250 Message accepted"

    async def handle_RSET(self, server: Any, session: Any, envelope: Any) -> str:
        self._record("RSET", session, envelope)
        return "250 reset"

    async def handle_NOOP(self, server: Any, session: Any, envelope: Any, arg: str | None) -> str:
        self._record("NOOP", session, envelope, arg)
        return "250 noop"

    async def handle_VRFY(self, server: Any, session: Any, envelope: Any, address: str) -> str:
        self._record("VRFY", session, envelope, address)
        return "252 maybe"

    async def handle_QUIT(self, server: Any, session: Any, envelope: Any) -> str:
        self._record("QUIT", session, envelope)
        return "221 so long"


class Rewriting:
    """Sets another sender, other recipients and another header."""

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        envelope.mail_from = "bounces@example.com"
        return "250 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        envelope.rcpt_tos += [address.replace("to@", "one@"), address.replace("to@", "two@")]
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> Any:
        message = message_from_bytes(envelope.content)
        del message["Subject"]
        message["Subject"] = "rewritten"
        envelope.content = message.as_bytes()
        return MISSING


class Refusing:
    """Refuses addresses and contents with the word "spam", though it has put them into the envelope."""

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        envelope.mail_from = address
        return self._judge(address)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        envelope.rcpt_tos.append(address)
        return self._judge(address)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        return self._judge(envelope.content.decode())

    def _judge(self, text: str) -> str:
        if "leave" in text:
            return "421 4.7.0 leave"
        return "550-5.7.1 spam\r\n550 5.7.1 is not wanted" if "spam" in text else "250 2.0.0 fine"


class Failing:
    """Raises in the hook that an address or the content names; else the server's own reply."""

    async def handle_HELO(self, server: Any, session: Any, envelope: Any, hostname: str) -> Any:
        raise RuntimeError("hello")

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> Any:
        envelope.mail_from = address
        return self._fail(address)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> Any:
        envelope.rcpt_tos.append(address)
        if "odd" in address:
            envelope.rcpt_tos[-1] = "no address\r\nRSET"
        return self._fail(address)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> Any:
        text = envelope.content.decode()
        if "nul" in text:
            envelope.content = "a\0b"
        if "nobody" in text:
            envelope.rcpt_tos.clear()
        return None if "none" in text else self._fail(text)

    def _fail(self, text: str) -> str:
        if "fail" in text:
            raise RuntimeError("a fault of the filter")
        return "250 OK"


class Explaining(Failing):
    """Replies to its own failures."""

    async def handle_exception(self, error: Exception) -> str:
        return "452 4.3.0 the filter is unwell"


class Pardoning(Failing):
    """Replies to its failures as if there were none: no message may be taken for that."""

    def handle_exception(self, error: Exception) -> str:
        return "250 never mind"


class Greeting:
    """The older form of handle_EHLO."""

    async def handle_EHLO(self, server: Any, session: Any, envelope: Any, hostname: str) -> str:
        if "unknown" not in hostname:
            session.host_name = hostname
        await server.push("250-XFILTER")
        return "550 go away" if "stranger" in hostname else "250 HELP"


class Slow:
    """Waits in handle_DATA until it is let go on."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> Any:
        self.entered.set()
        await self.go_on.wait()
        return MISSING


class Discarding:
    """Takes all mail and keeps none."""

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        envelope.rcpt_tos.clear()
        return "250 thanks"


class LoggingIn:
    """Wants a login, which a listener does not offer."""

    async def handle_AUTH(self, server: Any, session: Any, envelope: Any, args: Any) -> Any:
        return MISSING


class Demanding:
    """Cannot be made without an argument."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted


class Uncallable:
    """A hook that is no method."""

    handle_EHLO = "250 hello"  # noqa: N815


class Optional(Discarding):
    """Is made from options, some of which it does not survive."""

    @classmethod
    def from_options(cls, options: Sequence[tuple[str, str]]) -> Any:
        [(name, _)] = options
        if name == "raise":
            raise KeyError(name)
        made = {"nothing": None, "class": cls, "hookless": object(), "other": Discarding()}
        return made[name] if name in made else cls()


class Scripted:
    """Does in each hook what the test sets for it; without that, what aiosmtpd asks of the hook."""

    def __init__(self) -> None:
        self.acts: dict[str, Callable[..., Any]] = {}
        """By command: called with server, session, envelope and argument; may be a coroutine function."""

    async def _act(self, verb: str, server: Any, session: Any, envelope: Any, argument: Any = "") -> Any:
        act = self.acts.get(verb)
        status = MISSING if act is None else act(server, session, envelope, argument)
        return await status if inspect.isawaitable(status) else status

    async def handle_HELO(self, server: Any, session: Any, envelope: Any, hostname: str) -> Any:
        return await self._act("HELO", server, session, envelope, hostname)

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> Any:
        return await self._act("MAIL", server, session, envelope, address)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> Any:
        return await self._act("RCPT", server, session, envelope, address)

    async def handle_RSET(self, server: Any, session: Any, envelope: Any) -> Any:
        return await self._act("RSET", server, session, envelope)

    async def handle_NOOP(self, server: Any, session: Any, envelope: Any, arg: str | None) -> Any:
        return await self._act("NOOP", server, session, envelope, arg)

    async def handle_VRFY(self, server: Any, session: Any, envelope: Any, address: str) -> Any:
        return await self._act("VRFY", server, session, envelope, address)

    async def handle_QUIT(self, server: Any, session: Any, envelope: Any) -> Any:
        return await self._act("QUIT", server, session, envelope)

    async def handle_exception(self, error: Exception) -> Any:
        return await self._act("exception", None, None, None, error) if "exception" in self.acts else ""


class ScriptedWhole(Scripted):
    """The same, and reads messages."""

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> Any:
        return await self._act("DATA", server, session, envelope)
