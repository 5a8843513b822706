"""Filters: dialogue and envelope where a hook refuses, fails, or leaves what it should not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mqcd.submit.esmtp.transaction import MAX_ENVELOPE
from mqcd.submit.session.dialogue import Dialogue
from mqcd.submit.session.filtering import HOOK_MS
from tests.fakes.clock import FakeClock
from tests.fakes.handlers import Scripted
from tests.unit.submit.session.test_filtering import MAIL, RCPT, handler_of, house, send
from tests.unit.submit.support import Client, House, open_house, server, until_gone, visit

Act = Callable[..., Any]


def scripted(ours: House, **acts: Act) -> Scripted:
    handler: Scripted = handler_of(ours)
    handler.acts.update(acts)
    return handler


def failing(*_: object) -> str:
    raise RuntimeError("a fault of the filter")


def saying(reply: Any) -> Act:
    return lambda *_: reply


async def begin(client: Client, *recipients: str) -> None:
    for line in ("EHLO client", MAIL, *(f"RCPT TO:<{each}>" for each in recipients)):
        assert (await client.say(line)).startswith("250"), line


async def recipients_of(ours: House) -> list[tuple[str, str]]:
    queued = sorted(await ours.queued(), key=lambda each: each.qid)
    return [(each.address, each.dsn) for each in queued]


async def test_a_recipient_whose_hook_fails_is_refused_by_its_name_and_counted() -> None:
    async with open_house(house("Scripted", maxbadreqs=0)) as ours, visit(ours) as client:
        scripted(ours, RCPT=failing, exception=saying("550 5.3.0 unwell"))
        await begin(client)
        for _ in range(100):
            assert await client.say(RCPT) == "550 5.3.0 unwell\r\n"
        assert await client.say(RCPT) == "421 4.7.0 Too many refused recipients, closing\r\n"
        refusals = [heard.refusal for heard in ours.observer.heard if heard.refusal is not None]
        assert {each.recipient for each in refusals} == {"to@example.com"}
        assert [each.reason for each in refusals] == ["fault"] * 100 + ["refusals"]


@pytest.mark.parametrize("line", ["NOOP", "VRFY to@example.com", "RSET", "QUIT"])
async def test_each_refusal_of_a_hook_counts(line: str) -> None:
    async with open_house(house("Scripted")) as ours, visit(ours) as client:
        scripted(ours, **{line[:4]: saying("550-5.7.1 not\r\n550 5.7.1 here")})
        assert await client.say(line) == "550-5.7.1 not\r\n550 5.7.1 here\r\n"
        assert ours.reasons() == ["filter"]


async def test_a_refused_recipient_is_taken_back_from_any_kind_of_list() -> None:
    def refuse(server: Any, session: Any, envelope: Any, address: str) -> str:
        envelope.rcpt_tos = (*envelope.rcpt_tos, address)
        return "550 5.7.1 no" if "spam" in address else "250 2.1.5 Ok"

    async with open_house(house("Scripted")) as ours, visit(ours) as client:
        scripted(ours, RCPT=refuse)
        await begin(client)
        assert await client.say("RCPT TO:<spam@example.com>") == "550 5.7.1 no\r\n"
        await send(client, RCPT)
        assert await recipients_of(ours) == [("to@example.com", "")]


async def test_what_a_refusing_noop_leaves_is_taken_back() -> None:
    def add(server: Any, session: Any, envelope: Any, argument: str) -> str:
        if not argument:
            envelope.rcpt_tos.append("other@example.com")
            envelope.mail_from = "other@example.net"
        return "250 2.0.0 Ok" if argument else "450 4.0.0 no"

    async with open_house(house("ScriptedWhole")) as ours, visit(ours) as client:
        scripted(ours, NOOP=add)
        await begin(client, "to@example.com")
        assert await client.say("NOOP") == "450 4.0.0 no\r\n"
        assert (await send(client, "NOOP b")).startswith("250 ")
        assert await recipients_of(ours) == [("to@example.com", "")]
        assert (await ours.queued())[0].envelope.sender == "from@example.net"


@pytest.mark.parametrize("name", ["Scripted", "ScriptedWhole"])
async def test_what_any_hook_leaves_is_queued(name: str) -> None:
    def begin_for(server: Any, session: Any, envelope: Any, address: str) -> str:
        envelope.mail_from = address
        envelope.rcpt_tos.append("archive@example.com")
        return "250 2.1.0 Ok"

    def rename(server: Any, session: Any, envelope: Any, address: str) -> str:
        envelope.mail_from = "other@example.net"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 Ok"

    async with open_house(house(name)) as ours, visit(ours) as client:
        scripted(ours, MAIL=begin_for, RCPT=rename)
        await client.say("EHLO client")
        assert (await send(client)).startswith("250 ")
        assert [each for each, _ in await recipients_of(ours)] == ["archive@example.com", "to@example.com"]
        assert {each.envelope.sender for each in await ours.queued()} == {"other@example.net"}


@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "DATA"])
async def test_an_address_beyond_ascii_that_a_filter_leaves_declares_smtputf8(verb: str) -> None:
    def rewrite(server: Any, session: Any, envelope: Any, address: str) -> str:
        envelope.mail_from = "büro@example.net" if verb == "MAIL" else envelope.mail_from
        envelope.rcpt_tos += [] if verb == "MAIL" else ["büro@example.com"]
        return "250 2.0.0 Ok"

    async with open_house(house("ScriptedWhole")) as ours, visit(ours) as client:
        scripted(ours, **{verb: rewrite})
        await client.say("EHLO client")
        assert (await send(client)).startswith("250 ")
        assert all(each.envelope.smtputf8 for each in await ours.queued())


async def test_equal_recipients_keep_their_own_parameters_through_a_filter() -> None:
    async with open_house(house("ScriptedWhole")) as ours, visit(ours) as client:
        await client.say("EHLO client")
        await send(client, MAIL, f"{RCPT} NOTIFY=NEVER", f"{RCPT} NOTIFY=DELAY")
        dsn = [each for _, each in await recipients_of(ours)]
        assert dsn == ["NOTIFY=NEVER", "NOTIFY=DELAY"]


async def test_a_recipient_that_policy_refuses_comes_to_no_hook() -> None:
    seen: list[str] = []

    def see(server: Any, session: Any, envelope: Any, address: str) -> Any:
        seen.append(address)
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 Ok"

    async with open_house(house("Scripted")) as ours, visit(ours) as client:
        scripted(ours, RCPT=see)
        await begin(client)
        assert (await client.say("RCPT TO:<to@elsewhere.example>"))[0] == "5"
        await send(client, RCPT)
        assert seen == [address for address, _ in await recipients_of(ours)] == ["to@example.com"]


@pytest.mark.parametrize("status", [None, "354 go on", asyncio.CancelledError()])
@pytest.mark.parametrize("verb", ["HELO", "MAIL", "RCPT", "NOOP", "DATA"])
async def test_what_is_no_reply_is_a_fault(verb: str, status: object) -> None:
    def act(*_: object) -> object:
        if isinstance(status, BaseException):
            raise status
        return status

    async with open_house(house("ScriptedWhole")) as ours, visit(ours) as client:
        scripted(ours, **{verb: act})
        replies = [await client.say(line) for line in ("HELO client", "NOOP")]
        if verb != "HELO":
            replies += [await client.say(line) for line in (MAIL, RCPT, "DATA")]
        if replies[-1].startswith("354"):
            replies.append(await client.send(b"a\r\n.\r\n"))
        assert "451 4.3.0 Local error, try again later\r\n" in replies
        assert ours.reasons()[0] == "fault"
        assert len(await ours.queued()) == (verb == "NOOP")


async def test_a_refused_name_is_forgotten() -> None:
    def name(server: Any, session: Any, envelope: Any, hostname: str) -> str:
        if hostname == "silent":
            return "250 ok"
        session.host_name = hostname
        return "550 5.7.1 no"

    async with open_house(house("Scripted")) as ours, visit(ours) as client:
        scripted(ours, HELO=name)
        assert (await client.say("HELO stranger")).startswith("550 ")
        assert await client.say("HELO silent") == "250 ok\r\n"
        assert (await client.say(MAIL)).startswith("503 ")


@pytest.mark.parametrize("content", [0, 5, []])
async def test_content_of_no_octets_is_a_fault(content: object) -> None:
    def rewrite(server: Any, session: Any, envelope: Any, _: str) -> str:
        envelope.content = content
        return "250 fine"

    async with open_house(house("ScriptedWhole")) as ours, visit(ours) as client:
        scripted(ours, DATA=rewrite)
        await client.say("EHLO client")
        assert (await send(client)).startswith("451 4.3.0 ")
        assert await ours.queued() == []


async def test_a_hook_cannot_leave_more_recipients_than_a_message_may_have() -> None:
    def expand(server: Any, session: Any, envelope: Any, address: str) -> str:
        envelope.rcpt_tos += [f"{'x' * 50}{number}@example.com" for number in range(MAX_ENVELOPE // 60)]
        return "250 many"

    async with open_house(house("Scripted")) as ours, visit(ours) as client:
        handler = scripted(ours, RCPT=expand)
        await begin(client)
        assert (await client.say(RCPT)).startswith("451 4.3.0 ")
        handler.acts.clear()
        await send(client, RCPT)
        assert await recipients_of(ours) == [("to@example.com", "")]


async def test_refused_recipients_take_no_room_in_the_envelope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqcd.submit.session.dialogue.MAX_ENVELOPE", 40)
    async with open_house(house("Scripted")) as ours, visit(ours) as client:
        handler = scripted(ours, RCPT=saying("450 4.7.1 later"))
        await begin(client)
        for _ in range(4):
            assert (await client.say(RCPT)).startswith("450 4.7.1 ")
        handler.acts.clear()
        assert (await client.say(RCPT)).startswith("250 ")


async def test_what_a_hook_pushes_comes_behind_earlier_replies() -> None:
    async def push(server: Any, session: Any, envelope: Any, argument: str) -> str:
        await server.push("250-still")
        return "250 here"

    async with open_house(house("Scripted")) as ours, visit(ours) as client:
        scripted(ours, NOOP=push)
        await begin(client, "to@example.com")
        client.writer.write(b"BDAT 3\r\na\r\nNOOP\r\nBDAT 0 LAST\r\n")
        assert await client.reply() == "250 2.0.0 3 octets\r\n"
        assert await client.reply() == "250-still\r\n250 here\r\n"
        assert (await client.reply()).startswith("250 2.0.0 Ok: queued")


async def test_a_fault_of_the_door_refuses_a_command_beside_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_house(house("Scripted")) as ours, visit(ours) as client:
        await client.say("EHLO client")
        with monkeypatch.context() as patch:
            patch.setattr(Dialogue, "_begin", failing)
            assert (await client.say(MAIL)).startswith("451 4.3.0 ")
        assert (await client.say(MAIL)).startswith("250 ")


async def test_handle_exception_has_the_time_of_a_hook() -> None:
    clock = FakeClock()
    entered, never = asyncio.Event(), asyncio.Event()

    async def hang(*_: object) -> str:
        entered.set()
        await never.wait()
        return "451 4.3.0 late"

    ours = House(server(filter="tests.fakes.handlers:Scripted", timeout=60_000), clock=clock)
    async with open_house(ours), visit(ours) as client:
        scripted(ours, MAIL=failing, exception=hang)
        await client.say("EHLO client")
        client.writer.write(f"{MAIL}\r\n".encode())
        await entered.wait()
        await clock.run_for(HOOK_MS + 2000)
        assert await client.reply() == ""
        await until_gone(ours)


async def test_a_hook_that_overlooks_its_cancellation_takes_no_message() -> None:
    clock = FakeClock()
    entered = asyncio.Event()

    async def overlook(*_: object) -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "250 fine"
        return "450 4.0.0 no"

    ours = House(server(filter="tests.fakes.handlers:ScriptedWhole", timeout=60_000), clock=clock)
    async with open_house(ours), visit(ours) as client:
        scripted(ours, DATA=overlook)
        await client.begin()
        client.writer.write(b"a\r\n.\r\n")
        await entered.wait()
        await clock.run_for(HOOK_MS + 2000)
        await until_gone(ours)
        assert await ours.queued() == []


async def test_a_hook_may_cancel_itself_and_go_on() -> None:
    async def time_out(*_: object) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        return "250 fine"

    async with open_house(house("ScriptedWhole")) as ours, visit(ours) as client:
        scripted(ours, DATA=time_out)
        await client.say("EHLO client")
        assert await send(client) == "250 fine\r\n"
        assert len(await ours.queued()) == 1


async def held(entered: asyncio.Event, go_on: asyncio.Event) -> str:
    entered.set()
    await go_on.wait()
    return "550 5.7.1 no"


async def test_a_stop_that_waits_for_a_hook_waits_for_no_delay_behind_it() -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()
    async with open_house(house("Scripted", delay_badrecip=3_600_000)) as ours, visit(ours) as client:
        scripted(ours, RCPT=lambda *_: held(entered, go_on))
        await begin(client)
        client.writer.write(f"{RCPT}\r\n".encode())
        await entered.wait()
        stopping = asyncio.ensure_future(ours.door.stop())
        await asyncio.sleep(0)
        go_on.set()
        assert await client.reply() == "550 5.7.1 no\r\n"
        assert (await client.reply()).startswith("421 ")
        await stopping


async def test_a_client_that_leaves_a_hook_leaves_nothing_behind() -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()
    async with open_house(house("Scripted")) as ours:
        async with visit(ours) as client:
            scripted(ours, RCPT=lambda *_: held(entered, go_on))
            await begin(client)
            client.writer.write(f"{RCPT}\r\n".encode())
            await entered.wait()
        go_on.set()
        await until_gone(ours)
        assert ours.reasons() == ["filter"]
        assert await ours.queued() == []
