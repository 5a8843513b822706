"""A session at the door, given any octets.

Each reply is well formed, the session ends, nothing is logged as an error, the queue has exactly what was
answered with 250, no bare CR, LF or NUL among it, and a session beside it neither hears of it nor is heard.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from mqcd.config.settings import AuthType, BareNewline
from mqcd.core.smtp.reply import parse_line
from mqcd.submit.session.session import Session
from tests.fakes.clock import turns
from tests.unit.submit.support import House, Transport, server

_SECRET = b"neighbour-7f3a"
_HALF = b"EHLO a\r\nMAIL FROM:<%b@b.example>\r\nRCPT TO:<a@example.com>\r\nBDAT 90\r\nSubject: %b" % (
    _SECRET,
    _SECRET,
)


class Errors(logging.Handler):
    """Keeps what was logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def nothing_logged() -> Iterator[None]:
    """Fails if an error is logged meanwhile."""
    errors = Errors()
    logging.getLogger("mqcd").addHandler(errors)
    try:
        yield
    finally:
        logging.getLogger("mqcd").removeHandler(errors)
    assert errors.texts == []


def replies(written: bytes) -> list[tuple[int, str]]:
    """Code and text of each whole reply; fails on anything that is none."""
    assert written.endswith(b"\r\n")
    found = []
    for line in written[:-2].split(b"\r\n"):
        code, last, text = parse_line(line)
        if last:
            found.append((code, text))
    return found


def _connect(house: House) -> tuple[Session, Transport]:
    transport = Transport()
    session = house.door.receive("192.0.2.1")
    session.connection_made(cast("asyncio.Transport", transport))
    return session, transport


async def converse(pieces: Iterable[bytes], inline_max: int, **settings: Any) -> None:
    """One session: feed it, end it, and look at what it did."""
    # Mechanisms that need no thread; nobody is in the file, and all look as if they were.
    settings.setdefault("authtypes", (AuthType.CRAM_MD5, AuthType.SCRAM_SHA_256))
    made = server(maxbadreqs=30, maxmsgsize=5000, users=Path("nobody"), authtypes_ssl=(), **settings)
    house = House(made, inline_max=inline_max)
    await house.store.open()
    neighbour, beside = _connect(house)
    neighbour.data_received(_HALF)
    await turns(4)
    heard = beside.written
    session, transport = _connect(house)
    for piece in pieces:
        if transport.closed:
            break
        session.data_received(piece)
        await turns(6)
    session.eof_received()
    await turns(60)
    assert transport.closed
    session.connection_lost(None)
    assert house.door.sessions == 1
    assert beside.written == heard
    assert _SECRET not in transport.written
    await _check_queue(house, replies(transport.written))
    neighbour.connection_lost(None)
    await turns(6)
    assert house.door.sessions == 0


async def _check_queue(house: House, said: list[tuple[int, str]]) -> None:
    waiting = await house.queued()
    for recipient in waiting:
        whole = (await house.content(recipient)).replace(b"\r\n", b"")
        assert not any(octet in whole for octet in b"\r\n\0")
        assert _SECRET not in whole
    queued = {recipient.spid for recipient in waiting}
    assert len(queued) == sum("queued as" in text for _, text in said)
    assert all(text[:2] in (f"{code // 100}.", "") or code in (220, 250, 334, 354) for code, text in said)


def session(data: bytes) -> None:
    """The first octet chooses settings, the second how the rest is cut: 0 = by lines, else octets a piece."""
    if len(data) < 2:
        return
    flags, size, rest = data[0], data[1], data[2:]
    step = size or len(rest) or 1
    pieces = [rest[at : at + step] for at in range(0, len(rest), step)]
    lines = re.findall(rb"[^\n]*\n|[^\n]+", rest)
    settings: dict[str, Any] = {
        "bare_newline": BareNewline.REJECT if flags & 1 else BareNewline.NORMALIZE,
        "submission": bool(flags & 4),
        "ext_chunking": not flags & 8,
    }
    with nothing_logged():
        asyncio.run(converse(pieces if size else lines, 0 if flags & 2 else 65536, **settings))
