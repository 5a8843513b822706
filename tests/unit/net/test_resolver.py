"""DNS against a name server on loopback."""

import asyncio
import os
import resource
import sys

import pytest

from mqcd.config.settings import DnsSettings, HostPort
from mqcd.core.errors import LookupShortage, NameNotFound, ResolveFailed
from mqcd.core.ports import MxHost
from mqcd.net.resolver import FAILURE_MS, MAX_TTL_MS, MIN_TTL_MS, DnsResolver
from tests.fakes.clock import FakeClock
from tests.unit.net.nameserver import NameServer, serving

RECORDS = {
    ("mail.example", "MX"): ["20 b.mail.example.", "10 A.mail.example."],
    ("null.example", "MX"): ["0 ."],
    ("alias.example", "CNAME"): ["mail.example."],
    ("a.mail.example", "A"): ["192.0.2.1"],
    ("a.mail.example", "AAAA"): ["2001:db8::1"],
    ("b.mail.example", "A"): ["192.0.2.2"],
    ("many.example", "A"): ["192.0.2.3", "192.0.2.4"],
    ("many.example", "AAAA"): [f"2001:db8::{number}" for number in range(2, 8)],
    ("plain.example", "TXT"): ["nothing"],
}


def resolver(*servers: NameServer, timeout: int = 5000, max_entries: int = 100) -> DnsResolver:
    places = tuple(HostPort(host="127.0.0.1", port=server.port) for server in servers)
    return DnsResolver(DnsSettings(servers=places, timeout=timeout), FakeClock(), max_entries=max_entries)


async def test_mx_records_come_by_preference_in_lower_case() -> None:
    async with serving(NameServer(RECORDS)) as server:
        found = await resolver(server).mx("mail.example")
    assert found == [
        MxHost(preference=10, host="a.mail.example"),
        MxHost(preference=20, host="b.mail.example"),
    ]


async def test_a_null_mx_is_one_host_without_a_name() -> None:
    async with serving(NameServer(RECORDS)) as server:
        assert await resolver(server).mx("null.example") == [MxHost(preference=0, host="")]


async def test_an_alias_is_followed() -> None:
    async with serving(NameServer(RECORDS)) as server:
        assert len(await resolver(server).mx("alias.example")) == 2


async def test_no_mx_is_an_empty_answer_no_name_is_an_error() -> None:
    async with serving(NameServer(RECORDS)) as server:
        names = resolver(server)
        assert await names.mx("plain.example") == []
        with pytest.raises(NameNotFound, match=r"no\.example does not exist"):
            await names.mx("no.example")
        with pytest.raises(NameNotFound, match="has no address"):
            await names.addresses("plain.example")


async def test_addresses_of_both_families_and_of_one() -> None:
    async with serving(NameServer(RECORDS)) as server:
        names = resolver(server)
        assert list(await names.addresses("a.mail.example")) == ["2001:db8::1", "192.0.2.1"]
        assert list(await names.addresses("b.mail.example")) == ["192.0.2.2"]
        # Also who tries but a few of them comes to both families.
        many = await names.addresses("many.example")
        assert [":" in each for each in many] == [True, False, True, False, True, True, True, True]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
async def test_what_needs_no_dns_asks_none(name: str) -> None:
    async with serving(NameServer({})) as server:
        assert await resolver(server).addresses(name)
        assert not server.asked


async def test_a_failing_dns_server_is_temporary_and_cached() -> None:
    async with serving(NameServer(RECORDS, broken=["mail.example"])) as server:
        clock = FakeClock()
        place = HostPort(host="127.0.0.1", port=server.port)
        names = DnsResolver(DnsSettings(servers=(place,), timeout=300), clock)
        for _ in range(3):
            with pytest.raises(ResolveFailed):
                await names.mx("mail.example")
        asked = server.asked["mail.example", "MX"]
        server.broken = ()
        clock.advance(FAILURE_MS)
        assert await names.mx("mail.example")
        assert server.asked["mail.example", "MX"] == asked + 1


async def test_a_silent_server_is_temporary_and_the_next_one_is_asked() -> None:
    async with serving(NameServer({}, silent=["mail.example"])) as silent:
        with pytest.raises(ResolveFailed, match=r"within 0\.3 s"):
            await resolver(silent, timeout=300).mx("mail.example")
        async with serving(NameServer(RECORDS)) as server:
            assert await resolver(silent, server, timeout=2000).mx("mail.example")


async def test_answers_are_kept_by_their_ttl_negative_ones_too() -> None:
    async with serving(NameServer(RECORDS, ttl=60, negative_ttl=30)) as server:
        clock = FakeClock()
        place = HostPort(host="127.0.0.1", port=server.port)
        names = DnsResolver(DnsSettings(servers=(place,)), clock)
        for wait in (0, 15_000, 14_999, 1, 15_000, 14_999, 1):
            clock.advance(wait)
            await names.mx("mail.example")
            with pytest.raises(NameNotFound):
                await names.mx("no.example")
        assert server.asked["mail.example", "MX"] == 2
        assert server.asked["no.example", "MX"] == 3


@pytest.mark.parametrize(("ttl", "kept_ms"), [(0, MIN_TTL_MS), (86_400, MAX_TTL_MS)])
async def test_no_answer_is_asked_for_all_the_time_nor_kept_for_days(ttl: int, kept_ms: int) -> None:
    async with serving(NameServer(RECORDS, ttl=ttl, negative_ttl=ttl)) as server:
        clock = FakeClock()
        names = DnsResolver(DnsSettings(servers=(HostPort(host="127.0.0.1", port=server.port),)), clock)
        for wait in (0, kept_ms - 1, 1):
            clock.advance(wait)
            await names.mx("mail.example")
            with pytest.raises(NameNotFound):
                await names.mx("no.example")
        assert server.asked["mail.example", "MX"] == server.asked["no.example", "MX"] == 2


async def test_a_shared_look_up_survives_a_cancelled_caller() -> None:
    async with serving(NameServer(RECORDS)) as server:
        names = resolver(server)
        first = asyncio.ensure_future(names.mx("mail.example"))
        others = asyncio.gather(*(names.mx("mail.example") for _ in range(5)))
        await asyncio.sleep(0)
        first.cancel()
        assert len(await others) == 5
        assert server.asked["mail.example", "MX"] == 1


async def test_the_cache_is_bounded() -> None:
    async with serving(NameServer(RECORDS)) as server:
        names = resolver(server, max_entries=2)
        for name in ("mail.example", "null.example", "alias.example"):
            await names.mx(name)
        assert len(names._kept) == 2


@pytest.mark.parametrize("name", ["a" * 70 + ".example", "a..example"])
async def test_what_cannot_be_a_name_does_not_exist(name: str) -> None:
    async with serving(NameServer(RECORDS)) as server:
        with pytest.raises(NameNotFound, match="not a domain name"):
            await resolver(server).mx(name)


async def test_few_questions_are_asked_at_once() -> None:
    async with serving(NameServer(RECORDS, silent=("silent.example",))) as server:
        place = HostPort(host="127.0.0.1", port=server.port)
        names = DnsResolver(DnsSettings(servers=(place,), timeout=300), FakeClock(), most=1)
        first = asyncio.ensure_future(names.mx("silent.example"))
        second = asyncio.ensure_future(names.mx("mail.example"))
        with pytest.raises(ResolveFailed):
            await first
        assert set(server.asked) == {("silent.example", "MX")}
        assert len(await second) == 2


async def test_a_shortage_of_descriptors_is_no_servers_fault() -> None:
    async with serving(NameServer(RECORDS)) as server:
        names = resolver(server)
        await names.mx("mail.example")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        spare = os.open(os.devnull, os.O_RDONLY)
        os.close(spare)
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare, limits[1]))
        try:
            with pytest.raises(LookupShortage):
                await names.addresses("a.mail.example")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


FIRST_QUESTION = """
import asyncio, os, resource, sys
import mqcd.daemon.server
from mqcd.config.settings import DnsSettings, HostPort
from mqcd.core.errors import LookupShortage
from mqcd.net.resolver import DnsResolver
from tests.fakes.clock import FakeClock

async def main(port):
    clock = FakeClock()
    names = DnsResolver(DnsSettings(servers=(HostPort(host="127.0.0.1", port=port),)), clock)
    await names.addresses("192.0.2.1")
    assert "dns" not in sys.modules
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open(os.devnull, os.O_RDONLY)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, limits[1]))
    try:
        await names.mx("mail.example")
    except LookupShortage as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    clock.advance(1000)
    print((await names.mx("mail.example"))[0].host)

asyncio.run(main(int(sys.argv[1])))
"""


async def test_dnspython_is_imported_with_the_first_question_and_again_after_a_shortage() -> None:
    async with serving(NameServer(RECORDS)) as server:
        asking = await asyncio.create_subprocess_exec(
            sys.executable, "-c", FIRST_QUESTION, str(server.port), stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await asking.communicate()
    shortage, host = printed.decode().splitlines()
    assert shortage == "look-up of mail.example failed: Too many open files"
    assert host == "a.mail.example"
