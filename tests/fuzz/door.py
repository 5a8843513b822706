"""A session at the door, given any octets.

Each reply is well formed, the session ends, nothing is logged as an error, the queue has exactly what was
answered with 250, no bare CR, LF or NUL among it, and a session beside it neither hears of it nor is heard.

Over TLS nothing is written without it, and each reply is the one that a session gives whose client has said
nothing before STARTTLS: no command, and no part of one, survives it (RFC 3207, 4.2).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from mqcd.config.settings import AuthType, BareNewline, ListenerSslSettings
from mqcd.core.smtp.reply import parse_line
from mqcd.net.securing.layer import TlsLayer
from mqcd.net.securing.server import ListenerTls
from tests.fakes.clock import turns
from tests.fakes.tls import HELLO, FakeTls, inverted
from tests.unit.submit.support import House, Transport, server

_QUEUED = re.compile("queued as [0-9A-F]+")
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


class Plug(Transport):
    """A transport whose protocol changes when TLS begins."""

    layer: TlsLayer | None = None
    plain = 0
    """Octets that were written before."""

    def set_protocol(self, protocol: TlsLayer) -> None:
        self.layer, self.plain = protocol, len(self.written)

    def get_write_buffer_size(self) -> int:
        """Its peer reads all at once."""
        return 0


class Caller:
    """A client of one session. `hostile`: what follows STARTTLS is no TLS."""

    def __init__(self, house: House, *, hostile: bool = False) -> None:
        self.plug = Plug()
        self.session = house.door.receive("192.0.2.1")
        self.session.connection_made(cast("asyncio.Transport", self.plug))
        self._hostile = hostile
        self.inside: list[bytes] = []
        """What it has sent over TLS."""

    async def send(self, piece: bytes) -> None:
        layer = self.plug.layer
        if layer is None:
            self.session.data_received(piece)
        elif self._hostile:
            layer.data_received(b"\0" + piece)
        else:
            if not self.inside:
                layer.data_received(HELLO)
            self.inside.append(piece)
            layer.data_received(inverted(piece))
        await turns(6)

    async def send_all(self, pieces: Iterable[bytes]) -> None:
        """Send them, and leave."""
        for piece in pieces:
            if self.plug.closed:
                break
            await self.send(piece)
        (self.plug.layer or self.session).eof_received()
        await turns(60)
        assert self.plug.closed
        (self.plug.layer or self.session).connection_lost(None)

    def heard(self) -> tuple[bytes, bytes]:
        """What the server has said before TLS, and over it."""
        written, plain = self.plug.written, self.plug.plain
        if self.plug.layer is None or not self.inside:
            return written, b""
        assert written[plain : plain + 1] == HELLO
        return written[:plain], inverted(written[plain + 1 :])


async def _house(inline_max: int, **settings: Any) -> House:
    # Mechanisms that need no thread; nobody is in the file, and all look as if they were.
    settings.setdefault("authtypes", (AuthType.CRAM_MD5, AuthType.SCRAM_SHA_256))
    made = server(maxmsgsize=5000, users=Path("nobody"), authtypes_ssl=(), **settings)
    ssl = ListenerSslSettings(latent=True, certfile=(Path("none"),))
    house = House(made, inline_max=inline_max, ssl=ssl, tls=cast("ListenerTls", FakeTls()))
    await house.store.open()
    return house


async def converse(
    pieces: Iterable[bytes], inline_max: int, *, hostile: bool = False, **settings: Any
) -> None:
    """One session: feed it, end it, and look at what it did."""
    house = await _house(inline_max, **settings)
    neighbour = Caller(house)
    await neighbour.send(_HALF)
    beside = neighbour.plug.written
    caller = Caller(house, hostile=hostile)
    await caller.send_all(pieces)
    assert house.door.sessions == 1
    assert neighbour.plug.written == beside
    before, over_tls = caller.heard()
    assert _SECRET not in before + over_tls
    said = replies(over_tls) if over_tls else []
    await _check_queue(house, [*replies(before), *said])
    neighbour.session.connection_lost(None)
    await turns(6)
    assert house.door.sessions == 0
    if caller.inside:
        fresh = Caller(await _house(inline_max, **settings))
        await fresh.send(b"EHLO a\r\nSTARTTLS\r\n")
        await fresh.send_all(caller.inside)
        same = comparable(replies(octets)) if (octets := fresh.heard()[1]) else []
        # A connection's refusals count over TLS too, and may end it.
        ended = bool(said) and said[-1][0] == 421
        assert comparable(said)[: len(said) - ended] == same[: len(said) - ended]
        assert ended or len(said) == len(same)


def comparable(said: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Replies without what is new each time: queue ids and challenges."""
    return [(code, "" if code == 334 else _QUEUED.sub("queued", text)) for code, text in said]


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
        # Over TLS the count of bad commands goes on.
        "maxbadreqs": 0 if flags & 16 else 30,
        "hostile": bool(flags & 32),
    }
    with nothing_logged():
        asyncio.run(converse(pieces if size else lines, 0 if flags & 2 else 65536, **settings))
