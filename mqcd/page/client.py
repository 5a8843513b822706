"""Asks the server over its control socket: one connection a question, each with its limit of time.

What the server refuses is an answer like any other (`Answer.status`). That there is no answer is an error,
ServerDown, whose text is meant for the reader. An answer is read piece by piece: large contents and live
events pass through without being held.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

import h11

from mqcd.core.errors import MqcdError
from mqcd.core.value import value
from mqcd.net.control.client import address_of, why

ASK_S = 10.0
"""How long the server may take to begin an answer, and each further piece of it."""
ACT_S = 600.0
"""The same where it changes something, which may be much."""
QUICK, SEARCHES, UPLOADS, MAIL = 4, 3, 2, 2
"""Questions of each kind under way; others of the kind wait. Of the connections of the control socket
(`AT_ONCE` of `net.control.socket_file`) some are left for commands."""
UPLOAD_WAIT_S = 30.0
"""How long an upload waits for its turn: those before it come as slowly as their clients send them."""
_PIECE = 1 << 16
MOST_OCTETS = 16 << 20
"""The most octets of an answer that is held whole."""
AUTHOR = "X-Mqcd-Author"
"""The field that names who asks, by their token's name; the server believes its own user and root alone."""


class ServerDown(MqcdError):
    """The server does not run, or does not answer. Try again when it is back."""


class Crowded(ServerDown):
    """Too much of the kind is under way. Try again later."""


@value
class Answer:
    """What the server says, whole."""

    status: int
    content_type: str
    body: bytes

    @property
    def good(self) -> bool:
        return self.status < HTTPStatus.BAD_REQUEST

    @property
    def text(self) -> str:
        """The body as text, such as the reason of a refusal."""
        return self.body.decode("utf-8", "replace").strip()

    def json(self) -> Any:
        """The body's value. Raises ServerDown where it has none: a server of another version."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise ServerDown(f"the server's answer is no JSON: {error}") from error


@value
class Stream:
    """What the server says, piece by piece."""

    status: int
    content_type: str
    pieces: AsyncIterator[bytes]
    """Raises ServerDown when the answer breaks off."""


@value
class Question:
    """One request."""

    method: str = "GET"
    path: str
    query: str = ""
    """What follows the question mark, encoded."""
    body: bytes = b""
    upload: AsyncIterator[bytes] | None = None
    """Instead of `body`: passed on as it comes."""
    length: int = 0
    """Octets of `upload`."""
    content_type: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Of the header."""
    author: str = ""
    """Who asks, for log and events; "" = the page's own user."""
    live: bool = False
    """Whether the answer goes on for as long as somebody reads it."""
    mail: bool = False
    """Whether it submits a message, which may wait for others."""
    searches: bool = False
    """Whether the server may have to look through the whole queue for it."""

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path

    @classmethod
    def get(cls, path: str, query: Mapping[str, str] = {}) -> Question:
        """A look at a page."""
        return cls(path=path, query=urlencode(query))

    @classmethod
    def post(cls, path: str, fields: Mapping[str, object], author: str) -> Question:
        """A change that is described in JSON; with `dry_run` the server looks for what it would change."""
        body, kind, counts = json.dumps(fields).encode(), "application/json", "dry_run" in fields
        return cls(method="POST", path=path, body=body, content_type=kind, author=author, searches=counts)


class Client(Protocol):
    """What the page asks a server by. Each call raises ServerDown."""

    async def ask(self, question: Question) -> Answer:
        """The answer, whole."""

    def stream(self, question: Question) -> AbstractAsyncContextManager[Stream]:
        """The answer piece by piece, until the context ends."""


class ControlClient:
    """By a path in the file system."""

    def __init__(self, path: Path, *, ask_s: float = ASK_S, wait_s: float = UPLOAD_WAIT_S) -> None:
        self._path = path
        self._quick, self._searches = asyncio.Semaphore(QUICK), asyncio.Semaphore(SEARCHES)
        self._uploads, self._mail = asyncio.Semaphore(UPLOADS), asyncio.Semaphore(MAIL)
        self._ask_s, self._wait_s = ask_s, wait_s

    async def ask(self, question: Question) -> Answer:
        """See `Client`. An answer of more than MOST_OCTETS counts as none."""
        async with self.stream(question) as stream:
            pieces, size = [], 0
            async for piece in stream.pieces:
                pieces.append(piece)
                size += len(piece)
                if size > MOST_OCTETS:
                    raise ServerDown(f"the server's answer has more than {MOST_OCTETS} octets")
            return Answer(status=stream.status, content_type=stream.content_type, body=b"".join(pieces))

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[Stream]:
        """See `Client`."""
        quick = question.method in ("GET", "HEAD") and not question.searches
        seconds = self._ask_s if quick else ACT_S
        async with self._turn(question):
            reader, writer = await self._connect()
            try:
                talk = _Talk(self._path, reader, writer, None if question.live else seconds)
                yield await talk.begin(question)
            finally:
                writer.close()

    def _turn(self, question: Question) -> AbstractAsyncContextManager[None]:
        if question.live:
            return nullcontext()
        if question.upload is not None:
            return self._upload()
        if question.mail:
            return self._mail
        return self._searches if question.searches else self._quick

    @asynccontextmanager
    async def _upload(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._wait_s):
                await self._uploads.acquire()
        except TimeoutError:
            raise Crowded(f"{UPLOADS} large requests are under way already; try again later") from None
        try:
            yield
        finally:
            self._uploads.release()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bound.setblocking(False)
            with address_of(self._path) as address:
                async with asyncio.timeout(self._ask_s):
                    await asyncio.get_running_loop().sock_connect(bound, address)
            return await asyncio.open_unix_connection(sock=bound)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            bound.close()
            raise ServerDown(f"no server runs at {self._path}") from error
        except OSError as error:
            bound.close()
            raise ServerDown(f"no server answers at {self._path}: {why(error)}") from error
        except BaseException:
            bound.close()
            raise


class _Talk:
    """One request and its answer."""

    def __init__(
        self, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float | None
    ) -> None:
        self._path = path
        self._reader, self._writer = reader, writer
        self._seconds = seconds
        self._wire = h11.Connection(h11.CLIENT)

    async def begin(self, question: Question) -> Stream:
        """Send it, and read the head of the answer."""
        fields = [("Host", "localhost"), ("Connection", "close"), *question.fields.items()]
        if question.author:
            fields.append((AUTHOR, question.author))
        if question.method not in ("GET", "HEAD"):
            length = len(question.body) if question.upload is None else question.length
            fields.append(("Content-Length", str(length)))
            fields.append(("Content-Type", question.content_type))
        try:
            # As they came: the octets of a field need not be ASCII.
            octets = [(name.encode(), value.encode("latin-1")) for name, value in fields]
            head = h11.Request(method=question.method, target=question.target, headers=octets)
        except h11.LocalProtocolError as error:
            raise ValueError(f"not to be sent: {error}") from error
        self._write(head, h11.Data(data=question.body))
        if question.upload is None or await self._pass_on(question.upload):
            self._write(h11.EndOfMessage())
        event = await self._next()
        while not isinstance(event, h11.Response):
            event = await self._next()
        kinds = [value.decode("latin-1") for name, value in event.headers if name == b"content-type"]
        return Stream(status=event.status_code, content_type=kinds[0] if kinds else "", pieces=self._pieces())

    def _write(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._wire.send(event) or b"" for event in events))

    async def _pass_on(self, upload: AsyncIterator[bytes]) -> bool:
        """As fast as the server takes it; one that has gone takes no more. Whether all is sent."""
        try:
            async for piece in upload:
                self._write(h11.Data(data=piece))
                async with asyncio.timeout(self._seconds):
                    await self._writer.drain()
        except TimeoutError as error:
            raise ServerDown(f"the server at {self._path} takes nothing for {self._seconds:g} s") from error
        except OSError:
            return False
        return True

    async def _pieces(self) -> AsyncIterator[bytes]:
        while not isinstance(event := await self._next(), h11.EndOfMessage | h11.ConnectionClosed):
            if isinstance(event, h11.Data):
                yield bytes(event.data)

    async def _next(self) -> h11.Event:
        try:
            while (event := self._wire.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout(self._seconds):
                    self._wire.receive_data(await self._reader.read(_PIECE))
        except TimeoutError as error:
            raise ServerDown(f"the server at {self._path} is silent for {self._seconds:g} s") from error
        except OSError as error:
            raise ServerDown(f"the server at {self._path} has gone: {why(error)}") from error
        except h11.RemoteProtocolError as error:
            raise ServerDown(f"the server at {self._path} broke off: {error}") from error
        if not isinstance(event, h11.Event):
            raise ServerDown(f"the server at {self._path} says more than was asked")
        return event
