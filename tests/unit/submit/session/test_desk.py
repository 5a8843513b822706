"""Questions to DNS: which answers refuse a command, and what becomes of one without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from mqcd.config.settings import Direction
from mqcd.core.ports import MxHost, Refusal, Resolver
from mqcd.submit.policy.relay import relay_policy
from mqcd.submit.policy.rules import Gate, Rules
from mqcd.submit.session.desk import LOOKUP_MS, Desk
from mqcd.submit.session.dialogue import Dialogue
from mqcd.submit.users.logins import Logins
from tests.fakes.clock import FakeClock, turns
from tests.fakes.resolver import FakeResolver
from tests.unit.submit.support import server

CLIENT = "192.0.2.1"
DNS = FakeResolver(
    mx={"mail.example": [(10, "mx.mail.example")], "null.example": [(0, "")]},
    addresses={
        "host.example": ["198.51.100.1"],
        "client.example": ["2001:db8::1", CLIENT],
        "fake.example": [CLIENT],
    },
    failing=["slow.example"],
    names={
        CLIENT: ["gone.example", "client.example"],
        "192.0.2.2": ["host.example"],
        "192.0.2.3": ["slow.example"],
    },
)


class Talk:
    """A dialogue and its desk."""

    def __init__(self, resolver: Resolver | None = DNS, client: str = CLIENT, **settings: Any) -> None:
        made = server(relay_domains=(), relay_clients=(), **settings)
        self.refusals: list[Refusal] = []
        self.clock = FakeClock()
        rules = Rules(made, relay_policy(made, {}), Gate())
        rules.recipient_denied = lambda *_, **__: None  # type: ignore[method-assign]
        self.dialogue = Dialogue(rules, "test", client, self.refusals.append)
        self.desk = Desk(self.clock, resolver, Logins())

    async def say(self, *lines: str) -> str:
        """Say the lines; the code of the last reply."""
        reply = b""
        for line in lines:
            reply = await self.desk.settle(self.dialogue, self.dialogue.command(line.encode()))
        return reply.decode().split(" ", 1)[0][:3]


@pytest.mark.parametrize(
    ("name", "allowed", "code"),
    [
        ("host.example", True, "250"),
        ("nowhere.example", True, "550"),
        ("slow.example", True, "250"),
        ("slow.example", False, "450"),
    ],
)
async def test_forward(name: str, allowed: bool, code: str) -> None:
    talk = Talk(validate_helo=True, validate_helo_allowtimeout=allowed)
    assert await talk.say(f"HELO {name}") == code
    assert await talk.say("MAIL FROM:<>") == ("250" if code == "250" else "503")


@pytest.mark.parametrize(
    ("client", "code"),
    [(CLIENT, "250"), ("192.0.2.2", "550"), ("192.0.2.3", "450"), ("192.0.2.4", "550")],
)
async def test_reverse(client: str, code: str) -> None:
    talk = Talk(
        client=client,
        validate_helo=True,
        validate_helo_direction=Direction.REVERSE,
        validate_helo_allowtimeout=False,
    )
    assert await talk.say("EHLO any.example") == code


DOMAINS = [
    ("mail.example", "250"),
    ("host.example", "250"),
    ("null.example", "550"),
    ("nowhere.example", "550"),
    ("slow.example", "450"),
    ("[192.0.2.1]", "250"),
]


@pytest.mark.parametrize(("domain", "code"), DOMAINS)
async def test_senders(domain: str, code: str) -> None:
    talk = Talk(validate_sender=True, validate_sender_allowtimeout=False)
    assert await talk.say("EHLO x", f"MAIL FROM:<a@{domain}>") == code
    assert await talk.say("RCPT TO:<b@mail.example>") == ("250" if code == "250" else "503")
    assert await talk.say("MAIL FROM:<>") == ("503" if code == "250" else "250")


@pytest.mark.parametrize(("domain", "code"), DOMAINS)
async def test_recipients(domain: str, code: str) -> None:
    talk = Talk(validate_recip=True, validate_recip_allowtimeout=False)
    assert (
        await talk.say("EHLO x", "MAIL FROM:<>", "RCPT TO:<b@mail.example>", f"RCPT TO:<a@{domain}>") == code
    )
    kept = ["b@mail.example"] + ([f"a@{domain}"] if code == "250" else [])
    assert talk.dialogue.begun.recipients == kept
    assert [refusal.recipient for refusal in talk.refusals] == ([] if code == "250" else [f"a@{domain}"])


async def test_a_message_too_large_asks_nothing() -> None:
    talk = Talk(validate_sender=True, maxmsgsize=100)
    assert await talk.say("EHLO x", "MAIL FROM:<a@nowhere.example> SIZE=200") == "552"
    assert not talk.dialogue.waits


class Silent(FakeResolver):
    """Never answers."""

    async def mx(self, domain: str) -> Sequence[MxHost]:
        await asyncio.get_running_loop().create_future()
        return ()


@pytest.mark.parametrize(("allowed", "code"), [(True, "250"), (False, "450")])
async def test_dns_has_only_so_much_time(allowed: bool, code: str) -> None:
    talk = Talk(Silent(), validate_sender=True, validate_sender_allowtimeout=allowed)
    await talk.say("EHLO x")
    saying = asyncio.ensure_future(talk.say("MAIL FROM:<a@b.example>"))
    await turns()
    talk.clock.advance(LOOKUP_MS - 1)
    await turns()
    assert not saying.done()
    talk.clock.advance(1)
    assert await saying == code


async def test_without_a_resolver_no_question_is_answered() -> None:
    talk = Talk(None, validate_sender=True)
    assert await talk.say("EHLO x", "MAIL FROM:<a@nowhere.example>") == "250"
