"""Answers the questions on which the reply to a command depends; see `conversation`. The answer to a
request for held mail, and the result of a login, are the reply itself.

A question to DNS has LOOKUP_MS. One that finds no answer in time counts as unanswered: the command is then
taken or refused for the time being, as the setting `allowtimeout` says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from mqcd.core.errors import NameNotFound, ResolveFailed, StoreUnavailable
from mqcd.core.ports import Clock, Connection, Resolver
from mqcd.core.smtp.reply import Reply
from mqcd.net.waits import in_time
from mqcd.submit.checks.greylist import Triplet, try_again
from mqcd.submit.checks.names import Lookup, Want
from mqcd.submit.esmtp.calls import BUSY, NO_MAIL, NOTHING, REVERSING, STARTED, UNABLE, Collect, Start
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.policy.greylist import Greylist
from mqcd.submit.session.dialogue import Dialogue
from mqcd.submit.users.checking import LoginsBusy
from mqcd.submit.users.logins import Logins

log = logging.getLogger(__name__)

LOOKUP_MS = 10_000
"""Well below the five minutes that a client waits for the reply to MAIL or RCPT (RFC 5321, 4.5.3.2)."""
_MOST_NAMES = 5
"""Names of one client address that are looked up."""


class HeldMail(Protocol):
    """The mail that is held for domains, in all shards."""

    async def start(self, node: str, user: str) -> bool:
        """Work through the mail of a node of ETRN now; whether there is some. Raises StoreUnavailable."""

    async def waiting(self, call: Collect) -> bool:
        """Whether there is mail to be collected. Raises StoreUnavailable."""

    async def collect(
        self, call: Collect, connection: Connection, session: str, stops: Callable[[], bool]
    ) -> None:
        """Send it over a connection whose client has become the server, and end that; no message is begun
        once `stops` says so. Raises StoreUnavailable."""


class Desk:
    """What the sessions of one door ask."""

    def __init__(
        self, clock: Clock, resolver: Resolver | None, logins: Logins, greylist: Greylist | None = None
    ) -> None:
        """Without a resolver no question to DNS is answered; without a greylist all mail passes it."""
        self._clock = clock
        self._logins = logins
        self._greylist = greylist
        self._resolver = resolver
        self.held: HeldMail | None = None
        """None = none can be had."""

    async def settle(self, dialogue: Dialogue, reply: bytes) -> bytes:
        """The reply to the last command, once its questions are answered; `reply` if nothing refuses it."""
        while (question := dialogue.next_question()) is not None:
            if isinstance(question, Start):
                return await self._start(dialogue, question)
            if isinstance(question, Collect):
                return await self._collect(dialogue, question)
            refusal = await self._refusal(question)
            if refusal is not None:
                return dialogue.retract(*refusal)
        return reply

    async def _start(self, dialogue: Dialogue, call: Start) -> bytes:
        """The reply to ETRN."""
        try:
            if self.held is None:
                raise StoreUnavailable("held mail is not worked through")
            some = await self.held.start(call.node, call.user)
        except StoreUnavailable:
            return dialogue.refuse(Reason.STORE, UNABLE)
        return (STARTED if some else NOTHING).encode()

    async def _collect(self, dialogue: Dialogue, call: Collect) -> bytes:
        """The reply to ATRN."""
        try:
            if self.held is None:
                raise StoreUnavailable("held mail is not worked through")
            if not await self.held.waiting(call):
                return NO_MAIL.encode()
        except StoreUnavailable:
            return dialogue.refuse(Reason.STORE, BUSY)
        dialogue.reverse(call)
        return REVERSING.encode()

    async def collect(self, dialogue: Dialogue, connection: Connection, stops: Callable[[], bool]) -> None:
        """Send what a client in state REVERSED collects over its connection, and close that; no message is
        begun once `stops` says so."""
        try:
            if self.held is not None and dialogue.collects is not None:
                await self.held.collect(dialogue.collects, connection, dialogue.session, stops)
        except StoreUnavailable as error:
            log.warning("held mail stays: %s", error, extra={"session": dialogue.session})
        finally:
            connection.close()

    async def check_password(self, dialogue: Dialogue) -> bytes:
        """The reply to a login that has come to its password."""
        login = dialogue.login
        good = None
        if login is not None and login.checking is not None:
            with suppress(LoginsBusy):
                good = await self._logins.verify(dialogue.client, login.hash, login.checking.password)
        return dialogue.checked(good)

    async def _refusal(self, question: Lookup | Triplet) -> tuple[Reason, Reply] | None:
        if isinstance(question, Lookup):
            return await self._refused_by_dns(question)
        wait = 0 if self._greylist is None else await self._greylist.wait(question)
        return (Reason.GREYLIST, try_again(wait)) if wait else None

    async def _refused_by_dns(self, question: Lookup) -> tuple[Reason, Reply] | None:
        try:
            has = await in_time(self._clock, LOOKUP_MS, self._look_up(question))
        except NameNotFound:
            has = False
        except (ResolveFailed, TimeoutError):
            return None if question.failed is None else (question.reason, question.failed)
        return None if has else (question.reason, question.missing)

    async def _look_up(self, question: Lookup) -> bool:
        """Whether DNS has what is wanted. Raises NameNotFound, ResolveFailed."""
        resolver, name = self._resolver, question.name
        if resolver is None:
            raise ResolveFailed("no resolver is known here")
        if question.want is Want.CLIENT:
            return await self._leads_back(resolver, name)
        if question.want is Want.MAIL:
            exchangers = await resolver.mx(name)
            if exchangers:
                return any(each.host for each in exchangers)
        return bool(await resolver.addresses(name))

    async def _leads_back(self, resolver: Resolver, client: str) -> bool:
        unanswered: ResolveFailed | None = None
        for name in (await resolver.names(client))[:_MOST_NAMES]:
            try:
                if client in await resolver.addresses(name):
                    return True
            except NameNotFound:
                continue
            except ResolveFailed as error:
                unanswered = error
        if unanswered is not None:
            raise unanswered
        return False
