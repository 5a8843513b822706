"""What a shard accepts for others: the messages whose keys it owns (see `owners`).

A connection carries one message after another. What cannot be read ends it, and leaves nothing in the queue.
The socket lies beside the control socket, for the server's user alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from mqcd.core.errors import ConnectFailed, DecodeError, StoreUnavailable
from mqcd.core.model import Key, Submission
from mqcd.core.ports import MailTaker
from mqcd.core.queueing.idempotency import DIGEST_OCTETS
from mqcd.core.smtp.reply import Refused
from mqcd.daemon.shards import handed
from mqcd.net.control.socket_file import ControlSocket

log = logging.getLogger(__name__)

_BROKEN = (OSError, EOFError, DecodeError, ConnectFailed)
_FAULT = StoreUnavailable("the shard that knows the message's key has failed; its log has more")


class Expecting(MailTaker, Protocol):
    """A queue that accepts messages with SPIDs of other shards."""

    def expect(self, spid: int) -> None:
        """A SPID of another shard may name a message that comes now."""


class Owning:
    """One shard's: `listen`, then `close`."""

    def __init__(self, store: Expecting, path: Path) -> None:
        self._store = store
        self._socket = ControlSocket(path)
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def listen(self, place: str) -> None:
        """Raises ConfigError; `place` is where the control socket's path is configured."""
        bound = self._socket.bind(place)
        self._server = await asyncio.start_unix_server(self._serve, sock=bound)

    async def close(self) -> None:
        """Take no more; what is being accepted is accepted, and its door gets no answer."""
        if self._server is not None:
            self._server.close()
            for session in self._sessions:
                session.cancel()
            if self._sessions:
                await asyncio.wait(self._sessions)
        self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = asyncio.current_task()
        if session is not None:
            self._sessions.add(session)
            session.add_done_callback(self._sessions.discard)
        try:
            while await self._take(reader, writer):
                await writer.drain()
        except _BROKEN as error:
            log.debug("a message of another shard ended early: %s", error)
        except asyncio.CancelledError:
            # This server stops; asyncio would log the cancellation of its own task as a failure.
            log.debug("a connection of another shard is closed")
        finally:
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take one message; False when there is none, or the connection is of no more use."""
        octets = await reader.read(4)
        if not octets:
            return False
        octets += await reader.readexactly(4 - len(octets))
        head = handed.decode_head(await _part(reader, octets))
        arriving = _Arriving(reader, head.key)
        content = b"".join([part async for part in arriving.parts()]) if head.whole else arriving.parts()
        writer.write(await self._answer(replace(head.submission, content=content)))
        return arriving.done

    async def _answer(self, submission: Submission) -> bytes:
        try:
            self._store.expect(submission.envelope.spid)
            recipients = await self._store.enqueue(submission)
        except _BROKEN:
            raise
        except (Refused, StoreUnavailable) as error:
            return handed.encode_refused(error)
        except Exception as error:
            log.error("a message of another shard was not taken because of a fault", exc_info=error)
            return handed.encode_refused(_FAULT)
        return handed.encode_taken(recipients[0].spid, recipients[0].size)


class _Arriving:
    """The content of one message, as it comes."""

    def __init__(self, reader: asyncio.StreamReader, key: Key) -> None:
        self._reader = reader
        self._key = key
        self.done = False
        """Whether all of it has come."""

    async def parts(self) -> AsyncIterator[bytes]:
        """Raises EOFError when the other shard does not send it to its end."""
        while (head := await self._reader.readexactly(4)) != handed.END:
            yield await _part(self._reader, head)
        self._key.digest = await self._reader.readexactly(DIGEST_OCTETS)
        self.done = True


async def _part(reader: asyncio.StreamReader, size: bytes) -> bytes:
    octets = int.from_bytes(size, "little")
    if octets > handed.MOST:
        raise DecodeError(f"a part of {octets} octets")
    return await reader.readexactly(octets)
