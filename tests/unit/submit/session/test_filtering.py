"""Filters: hooks as aiosmtpd calls them, what they change, refuse and break."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, cast

import pytest
from aiosmtpd.smtp import SMTP

from mqcd.core.errors import DecodeError
from mqcd.submit.filters.handlers import BadFilter, make_handler
from mqcd.submit.filters.verdict import read_status
from mqcd.submit.session.filtering import HOOK_MS
from tests.fakes.clock import FakeClock
from tests.fakes.handlers import Recording, Slow
from tests.unit.submit.support import Client, House, Transport, open_house, server, until_gone, visit

FAKES = "tests.fakes.handlers"
MAIL = "MAIL FROM:<from@example.net>"
RCPT = "RCPT TO:<to@example.com>"


def house(name: str, **settings: Any) -> House:
    inline_max = settings.pop("inline_max", 65536)
    return House(server(filter=name if ":" in name else f"{FAKES}:{name}", **settings), inline_max=inline_max)


def handler_of(house: House) -> Any:
    handler = house.door.intake.book.common.handler
    assert handler is not None
    return handler.instance


async def send(client: Client, *lines: str, content: bytes = b"Subject: a\r\n\r\nb\r\n.\r\n") -> str:
    """Say the lines up to DATA, send the content; the reply to it."""
    for line in (*(lines or (MAIL, RCPT)), "DATA"):
        reply = await client.say(line)
        assert reply[0] in "23", reply
    return await client.send(content)


async def talk(port: int) -> None:
    """A session that reaches every hook."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = Client(reader, writer)
    await client.reply()
    lines = ["HELO old.example", "EHLO new.example", "NOOP", "NOOP some words", "VRFY to@example.com"]
    lines += ["MAIL FROM:<>", "RSET", f"{MAIL} BODY=8BITMIME SMTPUTF8", RCPT, "RCPT TO:<two@example.com>"]
    for line in lines:
        assert (await client.say(line)).startswith("25"), line
    assert (await client.say("DATA")).startswith("354")
    assert (await client.send(b"Subject: a\r\n\r\n..b\r\n.\r\n")).startswith("250 Message accepted")
    assert await client.say("QUIT") == "221 so long\r\n"
    await client.close()


async def test_hooks_are_called_as_aiosmtpd_calls_them() -> None:
    expected = Recording()
    theirs = await asyncio.get_running_loop().create_server(
        lambda: SMTP(expected, hostname="mx.example.org", enable_SMTPUTF8=True), "127.0.0.1", 0
    )
    await talk(theirs.sockets[0].getsockname()[1])
    theirs.close()
    async with open_house(house("Recording")) as ours:
        await talk(ours.door.port)
        assert handler_of(ours).calls == expected.calls


async def test_a_reload_before_the_connection_is_made_leaves_no_session_without_its_filter() -> None:
    async with open_house(house("Recording")) as ours:
        session = ours.door.receive("192.0.2.1")
        ours.door.reload(server())
        session.connection_made(cast("asyncio.Transport", Transport()))
        assert session.filter is not None
        session.connection_lost(None)


@pytest.mark.parametrize("name", ["aiosmtpd.handlers:Sink", "aiosmtpd.handlers:Debugging"])
async def test_handlers_of_aiosmtpd_are_filters(name: str) -> None:
    async with open_house(house(name)) as ours, visit(ours) as client:
        await client.say("EHLO client")
        assert (await send(client)).startswith("250 ")
        assert [each.address for each in await ours.queued()] == ["to@example.com"]


@pytest.mark.parametrize("inline_max", [65536, 4096])
async def test_a_rewritten_message_is_what_is_queued(inline_max: int) -> None:
    body = b"Subject: a\r\nTo: b\r\n\r\n" + b"line\r\n" * 1000
    async with open_house(house("Rewriting", inline_max=inline_max)) as ours, visit(ours) as client:
        await client.say("EHLO client")
        lines = (f"{MAIL} RET=HDRS", f"{RCPT} NOTIFY=NEVER")
        assert (await send(client, *lines, content=body + b".\r\n")).startswith("250 2.0.0 Ok: queued as ")
        queued = sorted(await ours.queued(), key=lambda each: each.qid)
        assert [each.address for each in queued] == ["one@example.com", "two@example.com"]
        assert {(each.envelope.sender, each.envelope.dsn, each.dsn) for each in queued} == {
            ("bounces@example.com", "RET=HDRS", "NOTIFY=NEVER")
        }
        assert await ours.content(queued[0]) == b"To: b\r\nSubject: rewritten\r\n\r\n" + b"line\r\n" * 1000


async def test_the_documents_example_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[4] / "docs" / "filters.md"
    example = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0]
    (tmp_path / "tagging.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    async with open_house(house("tagging:Tagging")) as ours, visit(ours) as client:
        await client.say("EHLO client")
        assert (await client.say("MAIL FROM:<a@spam.example>")).startswith("550 5.7.1 ")
        assert (await send(client)).startswith("250 2.0.0 ")
        assert await ours.content((await ours.queued())[0]) == b"Subject: [example] a\r\n\r\nb\r\n"


async def test_a_refusal_passes_through_and_refuses() -> None:
    async with open_house(house("Refusing")) as ours, visit(ours) as client:
        await client.say("EHLO client")
        spam = "550-5.7.1 spam\r\n550 5.7.1 is not wanted\r\n"
        assert await client.say("MAIL FROM:<spam@example.net>") == spam
        assert (await client.say(RCPT)).startswith("503 ")
        assert (await client.say(MAIL)).startswith("250 ")
        assert await client.say("RCPT TO:<spam@example.com>") == spam
        assert (await client.say("DATA")).startswith("554 ")
        assert (await client.say(RCPT)).startswith("250 ")
        assert (await client.say("DATA")).startswith("354 ")
        assert await client.send(b"Subject: spam\r\n\r\n.\r\n") == spam
        assert await ours.queued() == []
        assert [each for each in ours.reasons() if each == "filter"] == ["filter"] * 3
        assert await send(client) == "250 2.0.0 fine\r\n"
        assert len(await ours.queued()) == 1


@pytest.mark.parametrize("at", ["MAIL FROM:<leave@example.net>", "content"])
async def test_a_filters_421_ends_the_session(at: str) -> None:
    async with open_house(house("Refusing")) as ours, visit(ours) as client:
        await client.say("EHLO client")
        if at == "content":
            assert await send(client, content=b"leave\r\n.\r\n") == "421 4.7.0 leave\r\n"
        else:
            assert await client.say(at) == "421 4.7.0 leave\r\n"
        assert await client.reply() == ""
        await until_gone(ours)


@pytest.mark.parametrize(
    ("name", "reply"), [("Failing", "451 4.3.0 "), ("Explaining", "452 4.3.0 "), ("Pardoning", "451 4.3.0 ")]
)
async def test_a_filter_that_fails_is_a_temporary_refusal(name: str, reply: str) -> None:
    async with open_house(house(name)) as ours, visit(ours) as client:
        assert (await client.say("HELO client")).startswith(reply)
        assert (await client.say(MAIL)).startswith("503 ")
        await client.say("EHLO client")
        assert (await client.say("MAIL FROM:<fail@example.net>")).startswith(reply)
        assert (await client.say(RCPT)).startswith("503 ")
        await client.say(MAIL)
        for recipient in ("fail", "odd"):
            assert (await client.say(f"RCPT TO:<{recipient}@example.com>")).startswith(reply)
        assert (await client.say("DATA")).startswith("554 ")
        await client.say("RSET")
        for content in (b"fail", b"none", b"nul"):
            assert (await send(client, content=content + b"\r\n.\r\n")).startswith(reply)
        assert await ours.queued() == []
        assert (await send(client)).startswith("250 ")
        assert [each.address for each in await ours.queued()] == ["to@example.com"]


async def test_the_older_hook_for_ehlo_is_served() -> None:
    async with open_house(house("Greeting")) as ours, visit(ours) as client:
        assert (await client.say("EHLO unknown")).endswith("250-XFILTER\r\n250 HELP\r\n")
        assert (await client.say(MAIL)).startswith("503 ")
        assert "550 go away" in (await client.say("EHLO stranger")).splitlines()[-1]
        assert (await client.say(MAIL)).startswith("503 ")
        assert (await client.say("EHLO friend")).startswith("250-mx.example.org\r\n250-PIPELINING\r\n")
        assert (await client.say(MAIL)).startswith("250 ")


async def test_a_message_without_recipients_is_discarded() -> None:
    async with open_house(house("Discarding")) as ours, visit(ours) as client:
        await client.say("EHLO client")
        assert await send(client) == "250 thanks\r\n"
        assert await ours.queued() == []


async def test_pipelined_commands_pass_the_filter_in_order() -> None:
    async with open_house(house("Recording")) as ours, visit(ours) as client:
        group = [b"EHLO client", MAIL.encode(), *([RCPT.encode()] * 3), b"BAD", b"DATA"]
        client.writer.write(b"\r\n".join(group) + b"\r\n")
        replies = [(await client.reply())[:3] for _ in group]
        assert replies == ["250", "250", "250", "250", "250", "500", "354"]
        assert (await client.send(b"a\r\n.\r\nNOOP\r\n")).startswith("250 Message accepted")
        assert await client.reply() == "250 noop\r\n"
        assert len(await ours.queued()) == 3


async def test_content_ahead_of_354_ends_a_filtered_session() -> None:
    async with open_house(house("Recording")) as ours, visit(ours) as client:
        client.writer.write(f"EHLO client\r\n{MAIL}\r\n{RCPT}\r\nDATA\r\na\r\n.\r\n".encode())
        assert [(await client.reply())[:3] for _ in range(4)] == ["250", "250", "250", "421"]
        assert await ours.queued() == []


async def test_a_stop_waits_for_a_filter() -> None:
    async with open_house(house("Slow")) as ours, visit(ours) as client:
        await client.begin()
        client.writer.write(b"a\r\n.\r\n")
        slow: Slow = handler_of(ours)
        await slow.entered.wait()
        stopping = asyncio.ensure_future(ours.door.stop())
        await asyncio.sleep(0)
        slow.go_on.set()
        assert (await client.reply()).startswith("250 ")
        assert (await client.reply()).startswith("421 ")
        await stopping
        assert len(await ours.queued()) == 1


async def test_a_client_that_leaves_a_filter_ends_its_session() -> None:
    async with open_house(house("Slow")) as ours:
        async with visit(ours) as client:
            await client.begin()
            client.writer.write(b"a\r\n.\r\n")
            slow: Slow = handler_of(ours)
            await slow.entered.wait()
        slow.go_on.set()
        await until_gone(ours)
        assert len(await ours.queued()) == 1


async def test_a_hook_that_hangs_is_cancelled_with_its_session() -> None:
    clock = FakeClock()
    ours = House(server(filter=f"{FAKES}:Slow", timeout=60_000), clock=clock)
    async with open_house(ours), visit(ours) as client:
        await client.begin()
        client.writer.write(b"a\r\n.\r\n")
        await handler_of(ours).entered.wait()
        await clock.run_for(HOOK_MS - 2000)
        assert ours.door.sessions == 1
        await clock.run_for(4000)
        assert await client.reply() == ""
        await until_gone(ours)
        assert await ours.queued() == []


async def test_reload_changes_the_filter_of_new_sessions() -> None:
    async with open_house(house("Refusing")) as ours:
        ours.door.reload(server(filter=f"{FAKES}:Demanding"))
        async with visit(ours) as client:
            await client.say("EHLO client")
            assert (await client.say("MAIL FROM:<spam@example.net>")).startswith("550")
        ours.door.reload(server())
        async with visit(ours) as client:
            await client.say("EHLO client")
            assert (await client.say("MAIL FROM:<spam@example.net>")).startswith("250")


@pytest.mark.parametrize(
    "name",
    [
        "no_such_module:Class",
        f"{FAKES}:NoSuchClass",
        f"{FAKES}:asyncio",
        f"{FAKES}:Demanding",
        f"{FAKES}:LoggingIn",
        f"{FAKES}:Uncallable",
    ],
)
def test_a_class_that_cannot_filter_is_refused(name: str) -> None:
    with pytest.raises(BadFilter, match=name.partition(":")[2]):
        make_handler(name)


@pytest.mark.parametrize("option", ["raise=", "nothing=", "class=", "hookless="])
def test_whatever_from_options_does_wrong_is_an_error_of_the_filter(option: str) -> None:
    with pytest.raises(BadFilter, match="Optional"):
        make_handler(f"{FAKES}:Optional", (option,))


def test_from_options_may_make_a_handler_of_another_class() -> None:
    made = make_handler(f"{FAKES}:Optional", ("other=",))
    assert type(made.instance).__name__ == "Discarding"
    assert "DATA" in made.hooks


@pytest.mark.parametrize(
    "status", ["", "OK", "250", "250-a", "250-a\r\n550 b", "250 a\r\n250 b", "250 a\nb", "250 a\r", "999 a"]
)
def test_only_one_whole_reply_is_a_status(status: str) -> None:
    if status == "250":
        assert read_status(status)[0] == b"250\r\n"
        return
    with pytest.raises(DecodeError):
        read_status(status)


@pytest.mark.parametrize("status", [None, 250, ["250 OK"]])
def test_a_status_is_text(status: object) -> None:
    with pytest.raises(TypeError):
        read_status(status)


async def chunk(client: Client, content: bytes, last: str = "") -> str:
    client.writer.write(b"BDAT %d%b\r\n%b" % (len(content), last.encode(), content))
    return await client.reply()


async def test_a_message_in_chunks_goes_through_the_filter_whole() -> None:
    async with open_house(house("Recording")) as home, visit(home) as client:
        for line in ("EHLO client", MAIL, RCPT):
            assert (await client.say(line)).startswith("250")
        assert (await chunk(client, b"Subject: a\r\n")).startswith("250 2.0.0 12 octets")
        assert await client.say("NOOP") == "250 noop\r\n"
        assert (await chunk(client, b"\r\n.\r\n", " LAST")).startswith("250 Message accepted")
        [(_, _, _, content, _, _)] = [call for call in handler_of(home).calls if call[0] == "DATA"]
        assert content == b"Subject: a\r\n\r\n.\r\n"


async def test_what_is_abandoned_between_chunks_never_comes_to_the_filter() -> None:
    async with open_house(house("Recording")) as home, visit(home) as client:
        for line in ("EHLO client", MAIL, RCPT):
            await client.say(line)
        await chunk(client, b"Subject: a\r\n")
        assert (await client.say("RSET")).startswith("250")
        assert (await chunk(client, b"QUIT\r\n", " LAST")).startswith("503 ")
        assert "DATA" not in [call[0] for call in handler_of(home).calls]
        assert (await send(client)).startswith("250 Message accepted")
