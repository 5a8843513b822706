"""The sink on a real loopback socket: every action at every stage, timers, TLS, and its end."""

import asyncio
import contextlib
import smtplib
import socket
import ssl
from collections.abc import AsyncIterator, Callable

import pytest

from mqcd.sink.outputs import Limits, Received, Refused
from mqcd.sink.rules import Rules
from mqcd.sink.server import CallLater, Sink, SinkSettings, start
from tests.fakes.certificates import Authority
from tests.unit.sink.test_dialogue import STAGES

NOW = 1_700_000_000_123

COMMANDS = [
    b"EHLO client.example\r\n",
    b"MAIL FROM:<a@example.org>\r\n",
    b"RCPT TO:<b@example.com>\r\n",
    b"DATA\r\n",
    b"Subject: x\r\n\r\n..dot\r\n.\r\n",
]


class Client:
    """A client that sends what it is told and reads whole replies."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def reply(self) -> int:
        """The next reply's code; 0 when the server closed instead."""
        while True:
            line = await self.reader.readline()
            if not line:
                return 0
            if line[3:4] == b" ":
                return int(line[:3])

    async def command(self, octets: bytes) -> int:
        self.writer.write(octets)
        return await self.reply()

    async def send_mail(self) -> list[int]:
        return [await self.command(octets) for octets in COMMANDS]


@contextlib.asynccontextmanager
async def client_of(sink: Sink) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", sink.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Timer:
    """Stands for `call_later`: notes the wait and goes on when told."""

    def __init__(self) -> None:
        self.waits: asyncio.Queue[tuple[float, Callable[[], None]]] = asyncio.Queue()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.waits.put_nowait((seconds, callback))

    async def pass_one(self) -> float:
        """Wait for the next request to wait, and end its time; returns its seconds."""
        seconds, callback = await self.waits.get()
        callback()
        return seconds


class Desk:
    """What a sink told its callbacks."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.refused: list[Refused] = []

    @contextlib.asynccontextmanager
    async def sink(
        self,
        *rules: str,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        call_later: CallLater | None = None,
    ) -> AsyncIterator[Sink]:
        sink = await start(
            SinkSettings(rules=Rules.parse(rules), tls=tls, limits=limits or Limits()),
            now_ms=lambda: NOW,
            on_received=self.received.append,
            on_refused=self.refused.append,
            call_later=call_later,
        )
        try:
            yield sink
        finally:
            await sink.close()


async def test_a_message_is_taken_and_counted() -> None:
    desk = Desk()
    async with desk.sink() as sink, client_of(sink) as client:
        assert await client.reply() == 220
        assert await client.send_mail() == [250, 250, 250, 354, 250]
        assert await client.command(b"QUIT\r\n") == 221
        assert await client.reply() == 0
        [message] = desk.received
        assert message.content == b"Subject: x\r\n\r\n.dot\r\n"
        assert message.at_ms == NOW
        assert message.peer == "127.0.0.1:{}".format(client.writer.get_extra_info("sockname")[1])
        counters = sink.counters
        assert (counters.connections, counters.messages) == (1, 1)
        assert (counters.recipients, counters.octets) == (1, len(message.content))


async def test_python_s_own_client_is_served() -> None:
    desk = Desk()

    def send(port: int) -> dict[str, tuple[int, bytes]]:
        with smtplib.SMTP("127.0.0.1", port) as smtp:
            return smtp.sendmail(
                "a@example.org",
                ["b@example.com", "bad@example.com"],
                b"Subject: x\r\n\r\n.\r\n..\r\n.x\r\n",
            )

    async with desk.sink("bad@*=550 5.1.1 No such user") as sink:
        refused = await asyncio.to_thread(send, sink.port)
        assert refused == {"bad@example.com": (550, b"5.1.1 No such user")}
        assert desk.received[0].content == b"Subject: x\r\n\r\n.\r\n..\r\n.x\r\n"
        assert desk.received[0].recipients == ("b@example.com",)
        assert [each.recipient for each in desk.refused] == ["bad@example.com"]
        assert sink.counters.refused == 1


async def test_many_pipelined_messages_on_one_connection() -> None:
    desk = Desk()
    async with desk.sink() as sink, client_of(sink) as client:
        client.writer.write(COMMANDS[0] + b"".join(COMMANDS[1:]) * 2000 + b"QUIT\r\n")
        answer = await client.reader.read()
        assert answer.count(b"250 2.0.0 Taken\r\n") == 2000
        assert answer.endswith(b"221 2.0.0 Bye\r\n")


async def test_a_large_message_arrives_whole() -> None:
    desk = Desk()
    content = b"".join(b".%07d " % n + b"x" * 60 + b"\r\n" for n in range(60_000))
    async with desk.sink() as sink, client_of(sink) as client:
        await client.reply()
        for octets in COMMANDS[:4]:
            await client.command(octets)
        stuffed = content.replace(b"\r\n.", b"\r\n..")
        assert await client.command(b"." + stuffed + b".\r\n") == 250
        assert desk.received[0].content == content


@pytest.mark.parametrize(("stage", "codes"), STAGES)
async def test_a_stall_says_nothing_more(stage: str, codes: list[int]) -> None:
    desk = Desk()
    async with desk.sink(f"*=stall:{stage}") as sink, client_of(sink) as client:
        codes = [*codes, 354] if stage == "data" else codes
        for code in codes[:1]:
            assert await client.reply() == code
        for octets, code in zip(COMMANDS, codes[1:], strict=False):
            assert await client.command(octets) == code
        client.writer.write(b"".join(COMMANDS[max(0, len(codes) - 1) :]) + b"NOOP\r\n")
        # A second client's whole visit, then the sink's end: the first never hears a word.
        if stage in ("rcpt", "data", "dot"):
            async with client_of(sink) as other:
                assert await other.reply() == 220
                assert await other.command(COMMANDS[0]) == 250
        await sink.close()
        with contextlib.suppress(ConnectionResetError):
            assert await client.reader.read() == b""
        assert not desk.received


async def test_a_stall_in_mid_content_blocks_the_client() -> None:
    desk = Desk()
    async with desk.sink("*=stall:data") as sink, client_of(sink) as client:
        await client.reply()
        for octets in COMMANDS[:4]:
            await client.command(octets)
        # More than any socket buffer holds: what is left over cannot leave the client.
        client.writer.write(b"x" * 64_000_000)
        async with client_of(sink) as other:
            assert await other.reply() == 220
        transport = client.writer.transport
        assert transport.get_write_buffer_size() > 0
        await sink.close()
        transport.abort()


async def test_slow_waits_before_each_reply() -> None:
    desk, timer = Desk(), Timer()
    async with (
        desk.sink("*=slow:250", call_later=timer.call_later) as sink,
        client_of(sink) as client,
    ):
        client.writer.write(b"".join(COMMANDS) + b"QUIT\r\n")
        for code in (220, 250, 250, 250, 354, 250, 221):
            assert not client.reader.at_eof()
            taken = len(desk.received)
            assert await timer.pass_one() == 0.25
            assert await client.reply() == code
            assert taken == (1 if code == 221 else 0)
        assert await client.reply() == 0


async def test_a_client_that_leaves_during_a_wait_is_forgotten() -> None:
    desk, timer = Desk(), Timer()
    async with desk.sink("*=slow:250", call_later=timer.call_later) as sink:
        async with client_of(sink):
            _, go_on = await timer.waits.get()
        await sink.close()
        go_on()
        assert sink.counters.connections == 1
        assert timer.waits.empty()


async def test_a_reply_that_drips_comes_octet_by_octet() -> None:
    desk, timer = Desk(), Timer()
    async with (
        desk.sink("*=drip:mail:5", call_later=timer.call_later) as sink,
        client_of(sink) as client,
    ):
        await client.reply()
        await client.command(COMMANDS[0])
        client.writer.write(COMMANDS[1] + COMMANDS[2])
        for octet in b"250 2.1.0 Ok\r\n":
            assert await timer.pass_one() == 0.005
            assert await client.reader.readexactly(1) == bytes([octet])
        assert await client.reply() == 250
        assert timer.waits.empty()


@pytest.mark.parametrize("kept", [True, False])
async def test_the_answer_to_a_message_drips(kept: bool) -> None:
    taken: list[Received] = []

    def take(message: Received) -> None:
        if not kept:
            raise OSError("no space")
        taken.append(message)

    rules = Rules.parse(["*=drip:dot:0"])
    sink = await start(SinkSettings(rules=rules), now_ms=lambda: NOW, on_received=take)
    async with client_of(sink) as client:
        await client.reply()
        assert await client.send_mail() == [250, 250, 250, 354, 250 if kept else 451]
        assert len(taken) == sink.counters.messages == kept
        assert await client.command(b"NOOP\r\n") == 250
    await sink.close()


async def test_an_endless_reply_ends_with_its_client() -> None:
    desk = Desk()
    async with desk.sink("*=endless:ehlo") as sink:
        async with client_of(sink) as client:
            await client.reply()
            client.writer.write(COMMANDS[0])
            line = b"250-one line more\r\n"
            assert await client.reader.readexactly(200_000 * len(line)) == line * 200_000
            client.writer.transport.abort()
        await sink._empty.wait()


async def test_a_tiny_wait_by_the_loop_s_own_timer() -> None:
    desk = Desk()
    async with desk.sink("*=slow:1") as sink, client_of(sink) as client:
        assert await client.reply() == 220
        assert await client.send_mail() == [250, 250, 250, 354, 250]


async def test_a_message_that_cannot_be_kept_is_answered_451() -> None:
    def fail(_message: Received) -> None:
        raise OSError("no space")

    sink = await start(SinkSettings(), now_ms=lambda: NOW, on_received=fail)
    async with client_of(sink) as client:
        await client.reply()
        assert await client.send_mail() == [250, 250, 250, 354, 451]
        assert sink.counters.messages == 0
        assert (await client.send_mail())[0] == 250
    await sink.close()


async def test_a_client_that_reads_nothing_does_not_fill_the_memory() -> None:
    desk = Desk()
    async with desk.sink() as sink, client_of(sink) as client:
        client.writer.write(b"NOOP\r\n" * 500_000)
        await client.reply()
        # The sink stopped reading, and goes on as the replies are read: all of them come.
        reply = b"250 2.0.0 Ok\r\n"
        assert await client.reader.readexactly(500_000 * len(reply)) == reply * 500_000


async def test_a_closed_sink_has_no_port_and_closes_twice() -> None:
    sink = await start(SinkSettings(), now_ms=lambda: NOW)
    port = sink.port
    await sink.close()
    await sink.close()
    with pytest.raises(RuntimeError, match="closed"):
        _ = sink.port
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize("passes", range(5))
async def test_what_is_being_accepted_at_the_end_is_cut(passes: int) -> None:
    sink = await start(SinkSettings(), now_ms=lambda: NOW)
    with socket.create_connection(("127.0.0.1", sink.port), 30) as client:
        for _ in range(passes):
            await asyncio.sleep(0)
        await sink.close()
        with contextlib.suppress(ConnectionResetError):
            while await asyncio.to_thread(client.recv, 1000):
                pass


async def test_a_taken_port_is_an_error() -> None:
    sink = await start(SinkSettings(), now_ms=lambda: NOW)
    with pytest.raises(OSError, match="Address already in use"):
        await start(SinkSettings(port=sink.port), now_ms=lambda: NOW)
    await sink.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def context(authority: Authority) -> ssl.SSLContext:
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(authority.sign("localhost", "DNS:localhost"))
    return made


@pytest.mark.needs("openssl")
async def test_starttls(authority: Authority, context: ssl.SSLContext) -> None:
    desk = Desk()
    trusting = ssl.create_default_context(cafile=authority.certificate)
    async with desk.sink(tls=context) as sink, client_of(sink) as client:
        await client.reply()
        await client.command(COMMANDS[0])
        assert await client.command(b"STARTTLS\r\n") == 220
        await client.writer.start_tls(trusting, server_hostname="localhost")
        assert await client.command(COMMANDS[1]) == 503
        assert await client.send_mail() == [250, 250, 250, 354, 250]
        assert desk.received[0].tls
        assert await client.command(b"QUIT\r\n") == 221
        assert await client.reply() == 0


@pytest.mark.needs("openssl")
async def test_a_failed_handshake_closes(context: ssl.SSLContext) -> None:
    desk = Desk()
    async with desk.sink(tls=context) as sink, client_of(sink) as client:
        await client.reply()
        assert await client.command(b"STARTTLS\r\n") == 220
        client.writer.write(b"this is no TLS\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            await client.reader.read()
        await sink.close()


@pytest.mark.needs("openssl")
async def test_closing_during_a_handshake(context: ssl.SSLContext) -> None:
    desk = Desk()
    async with desk.sink(tls=context) as sink, client_of(sink) as client:
        await client.reply()
        assert await client.command(b"STARTTLS\r\n") == 220
        await sink.close()
