"""Any octets, cut anywhere: each command gets one well-formed reply or the connection ends, and the
queue has exactly what was answered with 250."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.door import converse, nothing_logged, replies
from tests.unit.submit.support import House, Transport, server

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


@settings(max_examples=200)
@given(
    st.one_of(PIECES, st.builds(lambda start, rest: start + rest, HAPPY, PIECES)),
    st.lists(st.integers(0, 400), max_size=20),
    st.sampled_from([65536, 0]),
)
def test_any_octets(pieces: list[bytes], cuts: list[int], inline_max: int) -> None:
    wire = b"".join(pieces)
    edges = sorted({min(cut, len(wire)) for cut in cuts} | {0, len(wire)})
    with nothing_logged():
        asyncio.run(converse([wire[start:end] for start, end in pairwise(edges)], inline_max))


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
