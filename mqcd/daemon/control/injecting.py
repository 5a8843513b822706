"""POST /v1/messages: a message into the queue, by the rules of programs' mail.

It goes through the door of local mail (`submit/local`), so filter, size, sender rights and refusals are those
of `mqcd sendmail`: a user of this machine sends as itself, a token of the API as the user `token:NAME`, which
`senders` may name. What is answered is durable. The field X-mqcd-Key of the message, or of the request, names
it: the same key again gives the same answer, and no second message. With `hold` it is accepted as held, under
that name: an action over `hold = NAME` releases or removes all of them as one batch.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from contextlib import nullcontext
from http import HTTPStatus

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.value import value
from mqcd.daemon.control.api.binding import Given, refused
from mqcd.daemon.control.api.fields import read_object
from mqcd.daemon.control.api.operation import JSON
from mqcd.daemon.control.api.table import ENVELOPE
from mqcd.daemon.listeners.local import LocalMail
from mqcd.net.credentials import user_name
from mqcd.ops.http.server import MAX_BODY, Request
from mqcd.sendmail.exchange import SECONDS, Busy, Refused, Taken, submit
from mqcd.sendmail.letter import Letter, at_most, normal_lines
from mqcd.submit.esmtp.caller import Caller

_QUEUED = re.compile(r"queued as ([0-9A-F]{16})")
_HOLD = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_ENVELOPE = 1 << 20
"""Octets of a request besides its message."""
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f<>]")


class Injecting:
    """The handler."""

    def __init__(self, local: LocalMail | None) -> None:
        """`local`: None where this process has no such door."""
        self._local = local
        self._large, self._turn = asyncio.Semaphore(2), asyncio.Semaphore(2)
        """Large messages held at once, each whole; and messages submitted at once. A slow peer holds `_large`
        alone: of the others the control socket's connections hold MAX_BODY each."""

    async def add(self, request: Request, _given: Given) -> object:
        """Take one."""
        local = self._local
        if local is None:
            raise StoreUnavailable("this process takes no programs' mail")
        most = at_most(local.door.settings.server.maxmsgsize)
        async with self._large if request.length > MAX_BODY else nullcontext():
            if (body := await _body(request, most)) is None:
                return refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {most} octets")
            given = _read(request, body)
            letter = _letter(given)
            user = await asyncio.to_thread(user_of, request)
            async with self._turn:
                ours, theirs = socket.socketpair()
                theirs.setblocking(False)
                local.door.admit(theirs, "", Caller(user=user, hold=given.hold))
                try:
                    taken = await asyncio.to_thread(_submit, ours, letter, user)
                except Refused as error:
                    return refused(HTTPStatus.UNPROCESSABLE_ENTITY, error)
                except (Busy, OSError) as error:
                    raise StoreUnavailable(f"not taken now: {error}") from error
        return _answer(letter, taken)


async def _body(request: Request, most: int) -> bytes | None:
    """All of it, with a message of at most `most` octets; None = it is too long, and was read, so that its
    sender sees why."""
    # What JSON escapes takes more octets than it stands for.
    body, fits = bytearray(), request.length <= most * (2 if _is_json(request) else 1) + _ENVELOPE
    if request.chunks is not None:
        async for chunk in request.chunks:
            if fits:
                body += chunk
    return bytes(body) if fits else None


@value
class _Given:
    """What a request gives."""

    sender: str
    recipients: Sequence[str]
    content: bytes
    key: str
    hold: str


def _is_json(request: Request) -> bool:
    return request.content_type.partition(";")[0].strip().lower() == JSON


def _read(request: Request, body: bytes) -> _Given:
    """Raises DecodeError."""
    if _is_json(request):
        given = read_object(ENVELOPE, body)
        words = {name: given.get(name, "") for name in ("key", "hold")}
        return _Given(
            sender=given["from"], recipients=given["to"], content=given["content"].encode(), **words
        )
    fields = request.fields
    if "x-mqcd-from" not in fields:
        raise DecodeError("X-Mqcd-From: missing; or send application/json")
    words = {name: fields.get(f"x-mqcd-{name}", "") for name in ("key", "hold")}
    recipients = [each.strip() for each in fields.get("x-mqcd-to", "").split(",")]
    return _Given(sender=fields["x-mqcd-from"], recipients=recipients, content=body, **words)


def _letter(given: _Given) -> Letter:
    for address in (*given.recipients, given.sender):
        if _UNPRINTABLE.search(address):
            raise DecodeError(f"not an address: {address[:60]!r}")
    if not given.recipients or not all(given.recipients):
        raise DecodeError("to: expected at least one address")
    if _UNPRINTABLE.search(given.key):
        raise DecodeError("key: expected one word")
    if given.hold and _HOLD.fullmatch(given.hold) is None:
        raise DecodeError("hold: expected at most 64 letters, digits, and . _ : -")
    octets = normal_lines(given.content, dots=True)
    if given.key:
        octets = b"X-mqcd-Key: %s\r\n" % given.key.encode() + octets
    body = "" if octets.isascii() else "8BITMIME"
    recipients = tuple(given.recipients)
    return Letter(sender=given.sender, author=None, recipients=recipients, content=octets, body=body)


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
