"""Any octets, cut anywhere: each command gets one well-formed reply or the connection ends, and the
queue has exactly what was answered with 250."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from pathlib import Path
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from mqcd.config.settings import AuthType
from mqcd.core.reply import parse_line
from tests.fakes.clock import turns
from tests.unit.submit.support import House, Transport, server


class Errors(logging.Handler):
    """Counts what was logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


COMMANDS = st.sampled_from(
    [
        b"EHLO a\r\n",
        b"HELO \xc3\xa4(\r\n",
        b"MAIL FROM:<>\r\n",
        b"MAIL FROM:<a@b.example> SIZE=5 BODY=8BITMIME\r\n",
        b"MAIL FROM:<\xc3\xa4@b.example> SMTPUTF8\r\n",
        b"RCPT TO:<a@example.com>\r\n",
        b"RCPT TO:<postmaster> NOTIFY=NEVER\r\n",
        b"RCPT TO:<@example.com:a@evil.example>\r\n",
        b'RCPT TO:<"a\\"@b"@example.com>\r\n',
        b"DATA\r\n",
        b"BDAT 0\r\n",
        b"BDAT 0 LAST\r\n",
        b"BDAT 4\r\na\r\n.",
        b"BDAT 3 last\r\nb\r\n",
        b"BDAT 20 LAST\r\n",
        b"BDAT 4000\r\n",
        b"BDAT x\r\n",
        b"RSET\r\n",
        b"NOOP\r\n",
        b"VRFY a\r\n",
        b"AUTH CRAM-MD5\r\n",
        b"AUTH SCRAM-SHA-256\r\n",
        b"AUTH SCRAM-SHA-256 biwsbj11c2VyLHI9YQ==\r\n",
        b"AUTH PLAIN AGEAYg==\r\n",
        b"*\r\n",
        b"dXNlciBh\r\n",
        b"a\r\n.\r\n",
        b".\r\n",
        b"..\r\n",
        b"\n.\n",
        b"\n.\r\n",
        b"\r\n.\n",
        b"\r.\r",
        b"NOOP\n",
        b"MA\xc4\xb1L FROM:<>\r\n",
        b"Received: a\r\n\r\n",
        b"x" * 3000 + b"\r\n",
    ]
)
PIECES = st.lists(st.one_of(COMMANDS, COMMANDS, COMMANDS, st.binary(max_size=30)), max_size=25)
HAPPY = st.just([b"EHLO a\r\n", b"MAIL FROM:<>\r\n", b"RCPT TO:<a@example.com>\r\n", b"DATA\r\n"])


def replies(written: bytes) -> list[tuple[int, str]]:
    """Code and text of each whole reply; fails on anything that is none."""
    assert written.endswith(b"\r\n")
    found = []
    for line in written[:-2].split(b"\r\n"):
        code, last, text = parse_line(line)
        if last:
            found.append((code, text))
    return found


async def converse(pieces: list[bytes], cuts: list[int], inline_max: int) -> None:
    """One session: feed it, end it, and look at what it did."""
    # Mechanisms that need no thread; nobody is in the file, and all look as if they were.
    types = (AuthType.CRAM_MD5, AuthType.SCRAM_SHA_256)
    made = server(maxbadreqs=30, maxmsgsize=5000, users=Path("nobody"), authtypes=types, authtypes_ssl=())
    house = House(made, inline_max=inline_max)
    await house.store.open()
    transport = Transport()
    session = house.door.receive("192.0.2.1")
    session.connection_made(cast("asyncio.Transport", transport))
    wire = b"".join(pieces)
    edges = sorted({min(cut, len(wire)) for cut in cuts} | {0, len(wire)})
    for start, end in pairwise(edges):
        if transport.closed:
            break
        session.data_received(wire[start:end])
        await turns(6)
    session.eof_received()
    await turns(60)
    assert transport.closed
    session.connection_lost(None)
    assert house.door.sessions == 0
    said = replies(transport.written)
    waiting = await house.queued()
    for recipient in waiting:
        whole = (await house.content(recipient)).replace(b"\r\n", b"")
        assert not any(octet in whole for octet in b"\r\n\0")
    queued = {recipient.spid for recipient in waiting}
    assert len(queued) == sum("queued as" in text for _, text in said)
    assert all(text[:2] in (f"{code // 100}.", "") or code in (220, 250, 334, 354) for code, text in said)


@settings(max_examples=200)
@given(
    st.one_of(PIECES, st.builds(lambda start, rest: start + rest, HAPPY, PIECES)),
    st.lists(st.integers(0, 400), max_size=20),
    st.sampled_from([65536, 0]),
)
def test_any_octets(pieces: list[bytes], cuts: list[int], inline_max: int) -> None:
    errors = Errors()
    logging.getLogger("mqcd").addHandler(errors)
    try:
        asyncio.run(converse(pieces, cuts, inline_max))
    finally:
        logging.getLogger("mqcd").removeHandler(errors)
    assert errors.texts == []


@given(st.lists(st.sampled_from([b"NOOP\r\n", b"FOO\r\n", b"RSET\r\n", b"VRFY a\r\n"]), max_size=20))
@settings(max_examples=25)
def test_each_command_has_one_reply(commands: list[bytes]) -> None:
    async def talk() -> list[tuple[int, str]]:
        transport = Transport()
        session = House(server(maxbadreqs=0)).door.receive("192.0.2.1")
        session.connection_made(cast("asyncio.Transport", transport))
        session.data_received(b"".join(commands))
        return replies(transport.written)[1:]

    codes = {b"NOOP\r\n": 250, b"RSET\r\n": 250, b"FOO\r\n": 500, b"VRFY a\r\n": 252}
    assert [code for code, _ in asyncio.run(talk())] == [codes[command] for command in commands]
