"""Quotas: whose mail counts, when it is too much, and that processes count together."""

from __future__ import annotations

from typing import Any

import pytest

from mqcd.config.settings import QuotaBy, QuotaSettings, Rate, ServerSettings, TenantBy
from mqcd.core.errors import StoreUnavailable
from mqcd.net.shared.tokens import SharedTokens
from mqcd.net.shared.tokens import make as make_tokens
from mqcd.net.shared.used_rates import UsedRates, make
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.policy.quotas import Parties, Quotas, SessionPlaces
from tests.fakes.clock import FakeClock
from tests.unit.submit.support import House, open_house, server, until_gone, visit
from tests.unit.submit.test_door import Store

HOUR = 3_600_000


def rate(count: int, per: int = HOUR) -> Rate:
    return Rate(count=count, per=per)


def quota(by: QuotaBy, *match: str, **limits: Any) -> QuotaSettings:
    return QuotaSettings(by=by, match=match, **limits)


class Meter:
    """Quotas and their clock."""

    def __init__(self, *quotas: QuotaSettings, fd: int | None = None, **settings: Any) -> None:
        self.clock = FakeClock()
        made = ServerSettings(quotas=quotas, **settings)
        used = UsedRates(make() if fd is None else fd)
        self.quotas = Quotas(made, "smtp", used, SessionPlaces(), self.clock.monotonic)

    def send(self, parties: Parties, recipients: int = 1, octets: int = 1) -> bool:
        """Whether a message is taken."""
        amounts = {"messages": 1, "recipients": recipients, "octets": octets}
        refused = self.quotas.take(parties, amounts)
        assert refused is None or (refused[0] is Reason.QUOTA and refused[1].code == 450)
        return refused is None


def test_what_is_given_back_is_as_if_it_was_never_used() -> None:
    meter = Meter(quota(QuotaBy.CLIENT, messages=rate(2), octets=rate(1000)))
    amounts = {"messages": 1, "octets": 800}
    assert meter.quotas.take(of(), amounts) is None
    assert meter.send(of(), 1, 100)
    meter.quotas.give_back(of(), amounts)
    assert meter.send(of(), 1, 900)
    assert not meter.send(of())


def test_what_came_back_by_itself_is_not_given_back_twice() -> None:
    meter = Meter(quota(QuotaBy.CLIENT, messages=rate(1)))
    assert meter.send(of())
    meter.clock.advance(2 * HOUR)
    meter.quotas.give_back(of(), {"messages": 1})
    assert [meter.send(of()) for _ in range(2)] == [True, False]


def of(client: str = "192.0.2.1", user: str = "", tenant: str = "") -> Parties:
    return Parties(client=client, user=user, tenant=tenant)


def test_a_quota_may_be_used_at_once_and_comes_back_evenly() -> None:
    meter = Meter(quota(QuotaBy.CLIENT, messages=rate(4)))
    assert [meter.send(of()) for _ in range(6)] == [True] * 4 + [False] * 2
    meter.clock.advance(HOUR // 4 - 1)
    assert not meter.send(of())
    meter.clock.advance(1)
    assert [meter.send(of()) for _ in range(2)] == [True, False]
    meter.clock.advance(10 * HOUR)
    assert [meter.send(of()) for _ in range(5)] == [True] * 4 + [False]


@pytest.mark.parametrize(
    ("by", "same", "other"),
    [
        (QuotaBy.CLIENT, of("192.0.2.1", "b"), of("192.0.2.2")),
        (QuotaBy.NETWORK, of("192.0.2.200"), of("192.0.3.1")),
        (QuotaBy.USER, of("198.51.100.1", "a"), of("192.0.2.1", "b")),
        (QuotaBy.TENANT, of("198.51.100.1", "b", "t"), of("192.0.2.1", "a", "u")),
    ],
)
def test_whose_mail_counts_together(by: QuotaBy, same: Parties, other: Parties) -> None:
    meter = Meter(quota(by, messages=rate(1)))
    assert meter.send(of("192.0.2.1", "a", "t"))
    assert not meter.send(same)
    assert meter.send(other)


@pytest.mark.parametrize(
    ("by", "one", "same", "other"),
    [
        (QuotaBy.CLIENT, "2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
        (QuotaBy.NETWORK, "2001:db8::1", "2001:db8:0:1::1", "2001:db8:1::1"),
    ],
)
def test_networks_of_ipv6(by: QuotaBy, one: str, same: str, other: str) -> None:
    meter = Meter(quota(by, messages=rate(1)))
    assert [meter.send(of(client)) for client in (one, same, other)] == [True, False, True]


def test_nobody_is_not_counted() -> None:
    meter = Meter(quota(QuotaBy.USER, messages=rate(1)), quota(QuotaBy.TENANT, messages=rate(1)))
    assert all(meter.send(of()) for _ in range(3))


def test_of_one_kind_the_first_that_matches_counts() -> None:
    meter = Meter(
        quota(QuotaBy.USER, "News*", messages=rate(3)),
        quota(QuotaBy.USER, messages=rate(1)),
        quota(QuotaBy.CLIENT, "198.51.100.0/24", messages=rate(2)),
    )
    assert [meter.send(of(user="newsletter")) for _ in range(4)] == [True] * 3 + [False]
    assert [meter.send(of(user="ann")) for _ in range(2)] == [True, False]
    assert [meter.send(of("198.51.100.7", "newsbot")) for _ in range(3)] == [True] * 2 + [False]


def test_a_refused_message_uses_nothing() -> None:
    meter = Meter(quota(QuotaBy.CLIENT, messages=rate(3), recipients=rate(10)))
    assert meter.send(of(), 8)
    assert not meter.send(of(), 3)
    assert meter.send(of(), 2)
    assert meter.quotas.add(of(), 1) is not None


def test_recipients_beyond_the_whole_quota_are_refused_and_octets_are_not() -> None:
    meter = Meter(quota(QuotaBy.CLIENT, recipients=rate(10), octets=rate(1000)))
    assert not meter.send(of(), 11)
    assert meter.send(of(), 1, 5000)
    assert not meter.send(of(), 1, 1)
    meter.clock.advance(5 * HOUR)
    assert meter.send(of(), 1, 1)


def test_processes_count_together() -> None:
    fd = make()
    one, two = (Meter(quota(QuotaBy.CLIENT, messages=rate(4)), fd=fd) for _ in range(2))
    assert [one.send(of()), two.send(of()), one.send(of()), two.send(of())] == [True] * 4
    assert not one.send(of())
    assert not two.send(of())


@pytest.mark.parametrize("shared", [False, True])
def test_sessions_count_from_their_first_message(shared: bool) -> None:
    clock = FakeClock()
    tokens = SharedTokens(make_tokens(), 2, clock.monotonic) if shared else None
    made = ServerSettings(quotas=(quota(QuotaBy.USER, sessions=2),))
    places = SessionPlaces(tokens)
    quotas = Quotas(made, "smtp", UsedRates(make()), places, clock.monotonic)
    first: dict[str, int] = {}
    second: dict[str, int] = {}
    third: dict[str, int] = {}
    ann = of(user="ann")
    assert quotas.begin(ann, first) is None
    assert quotas.begin(ann, first) is None
    assert quotas.begin(ann, second) is None
    refused = quotas.begin(ann, third)
    assert refused is not None
    assert refused[0] is Reason.SESSIONS
    assert quotas.begin(of(user="bob"), third) is None
    places.leave(first)
    assert quotas.begin(ann, third) is None


@pytest.mark.parametrize(
    ("by", "header", "expected"),
    [
        (TenantBy.USER, "", "ann"),
        (TenantBy.LISTENER, "", "smtp"),
        (TenantBy.HEADER, "X-Tenant", "acme"),
    ],
)
def test_tenants(by: TenantBy, header: str, expected: str) -> None:
    meter = Meter(quota(QuotaBy.TENANT, messages=rate(1)), tenant=by, tenant_header=header)
    assert meter.quotas.parties("192.0.2.1", "ann", ["acme", "other"]).tenant == expected


async def deliver(client: Any, recipients: int = 1, header: str = "") -> list[str]:
    """The codes of the replies to one message."""
    codes = [(await client.say("MAIL FROM:<>"))[:3]]
    numbers = range(recipients if codes == ["250"] else 0)
    codes += [(await client.say(f"RCPT TO:<{number}@example.com>"))[:3] for number in numbers]
    if "250" in codes[1:]:
        await client.say("DATA")
        codes.append((await client.send(f"{header}\r\nbody\r\n.\r\n".encode()))[:3])
    await client.say("RSET")
    return codes


async def test_a_door_refuses_as_early_as_it_can() -> None:
    quotas = (quota(QuotaBy.CLIENT, messages=rate(2), recipients=rate(3)),)
    async with open_house(House(server(quotas=quotas))) as house, visit(house) as client:
        await client.say("EHLO client")
        assert await deliver(client, 2) == ["250", "250", "250", "250"]
        assert await deliver(client, 2) == ["250", "250", "450", "250"]
        assert await deliver(client) == ["450"]
        assert house.reasons() == ["quota", "quota"]
        assert len(await house.queued()) == 3


async def test_a_tenant_by_header_is_refused_with_its_message() -> None:
    quotas = (quota(QuotaBy.TENANT, messages=rate(1), octets=rate(1 << 30)),)
    settings = server(quotas=quotas, tenant=TenantBy.HEADER, tenant_header="X-Tenant")
    for inline_max in (65536, 0):
        ours = House(settings, inline_max=inline_max)
        async with open_house(ours), visit(ours) as client:
            await client.say("EHLO client")
            assert await deliver(client, 1, "X-Tenant: Acme\r\n") == ["250", "250", "250"]
            assert await deliver(client, 1, "x-tenant: acme\r\n") == ["250", "250", "450"]
            assert await deliver(client, 1, "X-Tenant: other\r\n") == ["250", "250", "250"]
            assert await deliver(client, 1) == ["250", "250", "250"]


async def test_a_session_gives_its_place_back() -> None:
    ours = House(server(quotas=(quota(QuotaBy.CLIENT, sessions=1),)))
    async with open_house(ours):
        async with visit(ours) as one, visit(ours) as two:
            assert (await one.say("EHLO a"))[:3] == (await two.say("EHLO b"))[:3] == "250"
            assert (await one.say("MAIL FROM:<>")).startswith("250 ")
            assert (await two.say("MAIL FROM:<>")).startswith("450 ")
            assert ours.reasons() == ["sessions"]
        async with visit(ours) as three:
            await three.say("EHLO c")
            while not (await three.say("MAIL FROM:<>")).startswith("250 "):
                await three.say("RSET")


@pytest.mark.parametrize("inline_max", [65536, 0])
async def test_what_the_queue_does_not_take_uses_no_quota(inline_max: int) -> None:
    quotas = (quota(QuotaBy.CLIENT, messages=rate(1), recipients=rate(1), octets=rate(1000)),)
    store = Store()
    ours = House(server(quotas=quotas), store=store, clock=store.clock, inline_max=inline_max)
    async with open_house(ours), visit(ours) as client:
        await client.say("EHLO client")
        store.error = StoreUnavailable("disk full")
        for _ in range(3):
            assert await deliver(client) == ["250", "250", "451"]
        store.error = None
        assert await deliver(client) == ["250", "250", "250"]
        assert await deliver(client) == ["450"]


@pytest.mark.parametrize("inline_max", [65536, 0])
async def test_a_message_on_its_way_keeps_its_quota_when_the_session_is_cut(inline_max: int) -> None:
    store = Store()
    store.go.clear()
    quotas = (quota(QuotaBy.CLIENT, messages=rate(1)),)
    ours = House(server(quotas=quotas), store=store, clock=store.clock, inline_max=inline_max)
    async with open_house(ours):
        async with visit(ours) as client:
            await client.begin()
            client.writer.write(b"a\r\n.\r\n")
            await store.entered.wait()
            [session] = ours.door._sessions
            session.cut()
            await until_gone(ours)
        store.go.set()
        async with visit(ours) as client:
            await client.say("EHLO client")
            assert await deliver(client) == ["450"]


@pytest.mark.parametrize("begin", ["DATA", "BDAT"])
async def test_a_message_that_is_cut_while_it_comes_uses_no_quota(begin: str) -> None:
    store = Store()
    quotas = (quota(QuotaBy.CLIENT, messages=rate(1)),)
    ours = House(server(quotas=quotas), store=store, clock=store.clock, inline_max=0)
    async with open_house(ours):
        async with visit(ours) as client:
            if begin == "DATA":
                await client.begin()
                client.writer.write(b"a\r\n")
            else:
                await client.say("EHLO client")
                await client.say("MAIL FROM:<me@example.org>")
                await client.say("RCPT TO:<to@example.com>")
                client.writer.write(b"BDAT 3\r\na\r\n")
            await store.entered.wait()
            [session] = ours.door._sessions
            session.cut()
            await until_gone(ours)
        async with visit(ours) as client:
            await client.say("EHLO client")
            assert await deliver(client) == ["250"] * 3


async def test_a_repeat_uses_no_quota() -> None:
    quotas = (quota(QuotaBy.CLIENT, messages=rate(2)),)
    async with open_house(House(server(quotas=quotas, submission=True))) as house, visit(house) as client:
        await client.say("EHLO client")
        for _ in range(3):
            assert await deliver(client, 1, "X-mqcd-Key: a\r\n") == ["250", "250", "250"]
        assert await deliver(client) == ["250", "250", "250"]
        assert await deliver(client) == ["450"]
