"""POST /v1/messages: a message into the queue, by the rules of programs' mail.

It goes through the door of local mail (`submit/local`), so filter, size, sender rights and refusals are those
of `mqcd sendmail`: a user of this machine sends as itself, a token of the API as the user `token:NAME`, which
`senders` may name. What is answered is durable. The field X-mqcd-Key of the message, or of the request, names
it: the same key again gives the same answer, and no second message.
"""

from __future__ import annotations

import asyncio
import re
import socket
from http import HTTPStatus

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.daemon.control.api.binding import Given, refused
from mqcd.daemon.control.api.envelope import FIELDS
from mqcd.daemon.control.api.fields import read_object
from mqcd.daemon.control.api.operation import JSON
from mqcd.daemon.listeners.local import LocalMail
from mqcd.net.credentials import user_name
from mqcd.ops.http.server import Request
from mqcd.sendmail.exchange import SECONDS, Busy, Refused, Taken, submit
from mqcd.sendmail.letter import Letter, normal_lines
from mqcd.submit.esmtp.caller import Caller

_QUEUED = re.compile(r"queued as ([0-9A-F]{16})")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f<>]")


class Injecting:
    """The handler."""

    def __init__(self, local: LocalMail | None) -> None:
        """`local`: None where this process has no such door."""
        self._local = local
        self._turn = asyncio.Semaphore(2)
        """Messages at once: each is held whole."""

    async def add(self, request: Request, _given: Given) -> object:
        """Take one."""
        local = self._local
        if local is None:
            raise StoreUnavailable("this process takes no programs' mail")
        async with self._turn:
            sender, recipients, content, key = _read(request, await self._body(request, local))
            letter = _letter(sender, recipients, content, key)
            user = await asyncio.to_thread(user_of, request)
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            local.door.admit(theirs, "", Caller(user=user))
            try:
                taken = await asyncio.to_thread(_submit, ours, letter, user)
            except Refused as error:
                return refused(HTTPStatus.UNPROCESSABLE_ENTITY, error)
            except (Busy, OSError) as error:
                raise StoreUnavailable(f"not taken now: {error}") from error
        return _answer(letter, taken)

    async def _body(self, request: Request, local: LocalMail) -> bytes:
        most = local.door.settings.server.maxmsgsize
        if most and request.length > 2 * most:
            raise DecodeError(f"more than maxmsgsize allows, {most} octets")
        chunks = [chunk async for chunk in request.chunks] if request.chunks is not None else []
        return b"".join(chunks)


def _read(request: Request, body: bytes) -> tuple[str, list[str], bytes, str]:
    """Sender, recipients, content and key. Raises DecodeError."""
    if request.content_type.partition(";")[0].strip().lower() == JSON:
        given = read_object(FIELDS, body)
        return given["from"], given["to"], given["content"].encode(), given.get("key", "")
    if "x-mqcd-from" not in request.fields:
        raise DecodeError("X-Mqcd-From: missing; or send application/json")
    recipients = [each.strip() for each in request.fields.get("x-mqcd-to", "").split(",")]
    return request.fields["x-mqcd-from"], recipients, body, request.fields.get("x-mqcd-key", "")


def _letter(sender: str, recipients: list[str], content: bytes, key: str) -> Letter:
    for address in (*recipients, sender):
        if _UNPRINTABLE.search(address):
            raise DecodeError(f"not an address: {address[:60]!r}")
    if not recipients or not all(recipients):
        raise DecodeError("to: expected at least one address")
    if _UNPRINTABLE.search(key):
        raise DecodeError("key: expected one word")
    octets = normal_lines(content, dots=True)
    if key:
        octets = b"X-mqcd-Key: %s\r\n" % key.encode() + octets
    body = "" if octets.isascii() else "8BITMIME"
    return Letter(sender=sender, author=None, recipients=tuple(recipients), content=octets, body=body)


def user_of(request: Request) -> str:
    """The user that the message comes from."""
    kind, _, number = request.by.partition(":")
    return user_name(int(number)) if kind == "uid" and number.isdecimal() else request.by


def _submit(connection: socket.socket, letter: Letter, user: str) -> Taken:
    with connection:
        connection.settimeout(SECONDS)
        return submit(connection, letter, user)


def _answer(letter: Letter, taken: Taken) -> dict[str, object]:
    refusals = {recipient: str(answer) for recipient, answer in taken.refused}
    found = _QUEUED.search(taken.answer.text)
    rows = [
        {"recipient": each, "accepted": each not in refusals, "reply": refusals.get(each)}
        for each in letter.recipients
    ]
    return {"spid": found[1] if found is not None else None, "recipients": rows}
