"""BDAT (RFC 3030): the command, the octets of chunks, and a session that takes messages by them."""

from __future__ import annotations

from typing import Any

import pytest

from mqcd.core.errors import DecodeError
from mqcd.submit.message.chunking import Chunk, ChunkReader, parse_bdat
from mqcd.submit.session.deadlines import MESSAGE_MS, SESSION_MS
from mqcd.submit.session.session import Session
from mqcd.submit.session.wire import HIGH_WATER
from tests.fakes.clock import FakeClock, turns
from tests.unit.submit.session.test_session import TIMEOUT, connect
from tests.unit.submit.support import House, Transport, server

EHLO = b"EHLO client\r\n"
ENVELOPE = b"MAIL FROM:<from@example.net>\r\nRCPT TO:<to@example.com>\r\n"
BODY = b"Subject: x\r\n\r\n.\r\nbody\r\n"


def bdat(content: bytes, last: bool = True) -> bytes:
    return b"BDAT %d%b\r\n%b" % (len(content), b" LAST" if last else b"", content)


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("argument", "octets", "last"),
    [("0", 0, False), ("86", 86, False), ("86 LAST", 86, True), ("7\t last", 7, True), ("0 LAST", 0, True)],
)
def test_what_bdat_says(argument: str, octets: int, last: bool) -> None:
    assert parse_bdat(argument) == Chunk(octets=octets, last=last)


@pytest.mark.parametrize(
    "argument", ["", "LAST", "-1", "+1", "1.5", "0x5", "5LAST", "5 FIRST", "9" * 20, "٣"]
)
def test_what_bdat_may_not_say(argument: str) -> None:
    with pytest.raises(DecodeError):
        parse_bdat(argument)


# ---------------------------------------------------------------- the octets


def read(*chunks: bytes, normalize: bool = True) -> tuple[bytes, str]:
    """What chunks give, and the fault in them."""
    reader = ChunkReader(normalize=normalize)
    got = b""
    for number, chunk in enumerate(chunks, 1):
        reader.expect(Chunk(octets=len(chunk), last=number == len(chunks)))
        got += b"".join(reader.feed(chunk[at : at + 1]) for at in range(len(chunk))) or reader.feed(b"")
    assert reader.done
    assert reader.size == len(got)
    return got, reader.fault


@pytest.mark.parametrize(
    "chunks",
    [
        (b"",),
        (b"a\r\n",),
        (b"a\r", b"\nb\r\n"),
        (b".\r\n..\r\n", b".\r\n.\r\n"),
        (b"no end of line",),
        (b"a\r", b"", b"\n"),
    ],
)
def test_chunks_are_content_as_they_are(chunks: tuple[bytes, ...]) -> None:
    assert read(*chunks) == (b"".join(chunks), "")


@pytest.mark.parametrize(
    "chunks", [(b"a\rb\r\n",), (b"a\r",), (b"a\r", b"b"), (b"a\r\n\r",), (b"a\r", b"\r\n"), (b"\0",)]
)
def test_a_bare_cr_and_a_nul_are_faults(chunks: tuple[bytes, ...]) -> None:
    assert read(*chunks)[1]


def test_a_bare_lf_goes_by_the_setting() -> None:
    assert read(b"a\n.\n", b"\nb\r\n") == (b"a\r\n.\r\n\r\nb\r\n", "")
    assert "LF" in read(b"a\n", normalize=False)[1]


# ---------------------------------------------------------------- the session


class Talk:
    """A session that a client is talking to."""

    house: House
    session: Session
    transport: Transport

    async def begin(self, inline_max: int = 65536, **settings: Any) -> Talk:
        self.house = House(server(**settings), inline_max=inline_max)
        await self.house.store.open()
        self.session, self.transport = connect(self.house)
        await self.say(EHLO)
        return self

    async def say(self, octets: bytes) -> list[str]:
        """The codes of the replies to `octets`."""
        self.transport.written = b""
        self.session.data_received(octets)
        await turns(40)
        lines = self.transport.written.decode().splitlines()
        return [line[:3] for line in lines if line[3] == " "]

    async def contents(self) -> list[bytes]:
        return [await self.house.content(each) for each in await self.house.queued()]


@pytest.mark.parametrize("inline_max", [65536, 0])
async def test_a_message_in_one_read(inline_max: int) -> None:
    talk = await Talk().begin(inline_max)
    assert await talk.say(ENVELOPE + bdat(BODY) + b"NOOP\r\n") == ["250"] * 4
    assert await talk.contents() == [BODY]


@pytest.mark.parametrize("inline_max", [65536, 0])
async def test_a_message_in_chunks(inline_max: int) -> None:
    talk = await Talk().begin(inline_max)
    chunks = bdat(BODY, False) + bdat(b"", False) + bdat(b"NOOP\r", False) + b"NOOP\r\n" + bdat(b"\n")
    assert await talk.say(ENVELOPE + chunks + b"QUIT\r\n") == ["250"] * 7 + ["221"]
    assert await talk.contents() == [BODY + b"NOOP\r\n"]


@pytest.mark.parametrize("inline_max", [65536, 0])
async def test_each_cut_gives_the_same(inline_max: int) -> None:
    whole = ENVELOPE + bdat(BODY, False) + bdat(b"a\r", False) + bdat(b"\nb\r\n") + ENVELOPE + bdat(BODY)
    for size in (1, 2, 7):
        talk = await Talk().begin(inline_max)
        codes = []
        for at in range(0, len(whole), size):
            codes += await talk.say(whole[at : at + size])
        assert codes == ["250"] * 8
        assert sorted(await talk.contents()) == sorted([BODY, BODY + b"a\r\nb\r\n"])


async def test_an_empty_last_chunk_ends_a_message() -> None:
    talk = await Talk().begin()
    assert await talk.say(ENVELOPE + bdat(BODY, False)) == ["250"] * 3
    assert await talk.say(b"BDAT 0 LAST\r\n") == ["250"]
    assert await talk.contents() == [BODY]


async def test_a_message_may_be_empty() -> None:
    talk = await Talk().begin()
    assert await talk.say(ENVELOPE + b"BDAT 0 LAST\r\n") == ["250"] * 3
    assert await talk.contents() == [b""]


async def test_the_reply_to_a_chunk_waits_for_all_of_it() -> None:
    talk = await Talk().begin()
    await talk.say(ENVELOPE)
    assert await talk.say(b"BDAT 6 LAST\r\nabcd") == []
    assert await talk.say(b"\r\n") == ["250"]


@pytest.mark.parametrize(
    ("before", "codes"),
    [
        (b"", ["503"]),
        (b"MAIL FROM:<>\r\n", ["250", "554"]),
        (b"MAIL FROM:<>\r\nRCPT TO:<a@evil.example>\r\n", ["250", "554", "554"]),
        (b"MAIL FROM:<> FOO\r\n", ["555", "503"]),
    ],
)
async def test_a_refused_chunk_is_read_and_dropped(before: bytes, codes: list[str]) -> None:
    talk = await Talk().begin()
    assert await talk.say(before + bdat(b"QUIT\r\n", False) + b"NOOP\r\n") == [*codes, "250"]
    assert await talk.say(b"RSET\r\n" + ENVELOPE + bdat(BODY)) == ["250"] * 4
    assert await talk.contents() == [BODY]


async def test_the_reply_to_a_refused_chunk_waits_for_all_of_it() -> None:
    talk = await Talk().begin()
    assert await talk.say(b"BDAT 6\r\nQUIT") == []
    assert await talk.say(b"\r\nNOOP\r\n") == ["503", "250"]


async def test_data_does_not_mix_with_chunks() -> None:
    talk = await Talk().begin()
    await talk.say(ENVELOPE + bdat(BODY, False))
    assert await talk.say(b"DATA\r\n") == ["503"]
    assert await talk.say(b"RSET\r\n" + ENVELOPE) == ["250"] * 3
    assert await talk.say(b"DATA\r\n") == ["354"]
    assert await talk.say(b"x\r\n.\r\n") == ["250"]
    assert await talk.contents() == [b"x\r\n"]


@pytest.mark.parametrize("inline_max", [65536, 0])
@pytest.mark.parametrize("command", [b"RSET\r\n", EHLO, b"HELO client\r\n"])
async def test_a_command_abandons_chunks(inline_max: int, command: bytes) -> None:
    talk = await Talk().begin(inline_max)
    await talk.say(ENVELOPE + bdat(BODY, False))
    assert await talk.say(command + bdat(BODY)) == ["250", "503"]
    assert await talk.say(ENVELOPE + bdat(b"new\r\n")) == ["250"] * 3
    assert await talk.contents() == [b"new\r\n"]


async def test_quit_abandons_chunks() -> None:
    talk = await Talk().begin()
    assert await talk.say(ENVELOPE + bdat(BODY, False) + b"QUIT\r\n") == ["250"] * 3 + ["221"]
    assert talk.transport.closed
    assert await talk.contents() == []


async def test_a_chunk_beyond_the_limit_of_size_fails_the_message() -> None:
    talk = await Talk().begin(maxmsgsize=10)
    assert await talk.say(ENVELOPE + bdat(b"12345678", False) + bdat(b"123") + bdat(b"", False)) == [
        *["250"] * 3,
        "552",
        "503",
    ]
    assert await talk.say(ENVELOPE + bdat(b"1234567890")) == ["250"] * 3
    assert talk.house.reasons() == ["size", "sequence"]


@pytest.mark.parametrize("inline_max", [65536, 0])
async def test_a_fault_in_a_chunk_is_its_reply(inline_max: int) -> None:
    talk = await Talk().begin(inline_max)
    faulty = bdat(b"a\rb\r\n", False) + bdat(BODY)
    assert await talk.say(ENVELOPE + bdat(BODY, False) + faulty + ENVELOPE) == [
        *["250"] * 3,
        "554",
        "503",
        *["250"] * 2,
    ]
    assert await talk.contents() == []


@pytest.mark.parametrize("line", [b"BDAT\r\n", b"BDAT x\r\n", b"BDAT 5 NOW\r\n", b"BDAT -1\r\n"])
async def test_a_chunk_of_unknown_length_ends_the_session(line: bytes) -> None:
    talk = await Talk().begin()
    assert await talk.say(ENVELOPE + line + b"NOOP\r\n") == ["250", "250", "501"]
    assert talk.transport.closed


async def test_where_chunks_are_not_offered_they_are_dropped() -> None:
    talk = await Talk().begin(ext_chunking=False)
    assert await talk.say(ENVELOPE + bdat(b"QUIT\r\n") + b"NOOP\r\n") == ["250", "250", "500", "250"]


async def test_bad_commands_between_chunks_are_counted() -> None:
    talk = await Talk().begin(maxbadreqs=1)
    assert await talk.say(ENVELOPE + bdat(BODY, False) + b"FOO\r\nBAR\r\n" + bdat(BODY)) == [
        *["250"] * 3,
        "500",
        "421",
    ]
    assert talk.transport.closed
    assert await talk.contents() == []


async def test_a_client_that_leaves_between_chunks_leaves_nothing() -> None:
    talk = await Talk().begin(0)
    await talk.say(ENVELOPE + bdat(BODY, False))
    talk.session.connection_lost(None)
    await turns(5)
    assert talk.house.door.sessions == 0
    assert await talk.contents() == []


async def test_chatter_between_chunks_wears_out_patience() -> None:
    talk = await Talk().begin(maxbadreqs=0, timeout=0)
    await talk.say(ENVELOPE + bdat(BODY, False))
    now = talk.house.clock.monotonic()
    talk.session.data_received(b"NOOP\r\n" * (MESSAGE_MS // 100))
    await turns(MESSAGE_MS // 100 + 5)
    talk.session.check_deadline(now + 1000, TIMEOUT)
    await turns(3)
    assert talk.transport.closed
    assert talk.house.reasons() == ["timeout"]


async def test_chunks_may_outlast_a_session() -> None:
    talk = await Talk().begin(timeout=0)
    await talk.say(ENVELOPE + bdat(BODY, False))
    talk.session.deadlines.owing_since = SESSION_MS
    talk.session.check_deadline(SESSION_MS + 1, TIMEOUT)
    assert await talk.say(bdat(BODY)) == ["250"]


@pytest.mark.parametrize(
    "refused", [b"BDAT 9999999999999999999", ENVELOPE + b"BDAT 9999999999999999999", ENVELOPE + b"DATA"]
)
async def test_what_is_dropped_holds_no_session_for_ever(refused: bytes) -> None:
    talk = await Talk().begin(0, timeout=0, maxmsgsize=1000)
    await talk.say(refused + b"\r\n")
    clock = talk.house.clock
    assert isinstance(clock, FakeClock)
    for _ in range(SESSION_MS // MESSAGE_MS + 2):
        clock.advance(MESSAGE_MS)
        await talk.say(b"x" * MESSAGE_MS)
        talk.session.check_deadline(clock.monotonic(), TIMEOUT)
    await turns(3)
    assert talk.transport.closed
    assert talk.house.reasons()[-1] == "timeout"


async def test_a_client_that_reads_no_replies_is_not_read_between_chunks() -> None:
    talk = await Talk().begin()
    await talk.say(ENVELOPE + bdat(BODY, False))
    talk.session.pause_writing()
    assert await talk.say(b"NOOP\r\n" * (HIGH_WATER // 6 + 1)) == []
    assert talk.transport.paused
    talk.session.resume_writing()
    while talk.transport.written.count(b"\r\n") <= HIGH_WATER // 6:
        await turns(1)
    assert await talk.say(bdat(BODY)) == ["250"]
