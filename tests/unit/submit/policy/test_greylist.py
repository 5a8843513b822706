"""The database of greylisting: shared, bounded, and never in the way of mail."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcd.submit.checks.greylist import Terms, Triplet
from mqcd.submit.policy.greylist import ANSWER_MS, MOST, Greylist
from tests.fakes.clock import FakeClock, turns
from tests.unit.submit.support import LOOPBACK, House, open_house, server, visit

TERMS = Terms(delay=300_000, window=86_400_000, lifetime=10 * 86_400_000)
ONE = Triplet(key=b"1" * 16, terms=TERMS)
TWO = Triplet(key=b"2" * 16, terms=TERMS)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "var" / "greylist.sqlite"


@pytest.fixture
def greylist(path: Path, clock: FakeClock) -> Iterator[Greylist]:
    made = Greylist(path, clock)
    yield made
    made.close()


def keys(path: Path) -> set[bytes]:
    database = sqlite3.connect(path)
    found = {row[0] for row in database.execute("select key from triplet")}
    database.close()
    return found


async def test_a_triplet_passes_when_it_comes_again(greylist: Greylist, clock: FakeClock) -> None:
    assert await greylist.wait(ONE) == 300_000
    clock.advance(100_000)
    assert await greylist.wait(ONE) == 200_000
    assert await greylist.wait(TWO) == 300_000
    clock.advance(200_000)
    assert await greylist.wait(ONE) == 0
    clock.advance(TERMS.lifetime - 1)
    assert await greylist.wait(ONE) == 0


async def test_another_process_and_a_later_one_know_it(
    greylist: Greylist, path: Path, clock: FakeClock
) -> None:
    await greylist.wait(ONE)
    clock.advance(300_000)
    other = Greylist(path, clock)
    assert await other.wait(ONE) == 0
    other.close()
    assert await greylist.wait(ONE) == 0


async def test_triplets_that_are_over_are_deleted(greylist: Greylist, path: Path, clock: FakeClock) -> None:
    await greylist.wait(ONE)
    clock.advance(TERMS.window + 1)
    await greylist.wait(TWO)
    assert keys(path) == {TWO.key}


async def test_a_damaged_file_lets_mail_pass_and_begins_anew(
    greylist: Greylist, path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    assert await greylist.wait(ONE) == 0
    assert await greylist.wait(ONE) == 0
    assert len(caplog.records) == 1
    assert str(path) in caplog.text
    assert path.with_name(f"{path.name}.damaged").exists()
    clock.advance(60_000)
    assert await greylist.wait(ONE) == 300_000


async def test_a_directory_that_cannot_be_had_lets_mail_pass(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    greylist = Greylist(tmp_path / "file" / "greylist.sqlite", clock)
    assert await greylist.wait(ONE) == 0
    clock.advance(59_999)
    assert await greylist.wait(ONE) == 0
    assert len(caplog.records) == 1
    clock.advance(10_001)
    assert await greylist.wait(ONE) == 0
    assert len(caplog.records) == 2
    greylist.close()


async def test_a_database_that_hangs_lets_mail_pass(
    greylist: Greylist, path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    await greylist.wait(ONE)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    waits = [asyncio.ensure_future(greylist.wait(TWO)) for _ in range(MOST)]
    await turns()
    assert not any(each.done() for each in waits)
    assert await greylist.wait(TWO) == 0
    assert f"{MOST} deliveries wait" in caplog.text
    clock.advance(ANSWER_MS)
    assert await asyncio.gather(*waits) == [0] * MOST
    other.execute("rollback")
    other.close()


async def test_a_door_greylists_strangers_alone(tmp_path: Path) -> None:
    clock = FakeClock()
    for settings, code in (
        (server(greylist=True, greylist_delay=500), "451"),
        (server(greylist=True, relay_clients=(LOOPBACK,)), "250"),
        (server(greylist=True, greylist_allow=(LOOPBACK,)), "250"),
        (server(), "250"),
    ):
        greylist = Greylist(tmp_path / "greylist", clock)
        house = House(settings, clock=clock, greylist=greylist)
        async with open_house(house), visit(house) as client:
            await client.say("EHLO client")
            await client.say("MAIL FROM:<a@example.net>")
            assert (await client.say("RCPT TO:<b@example.com>"))[:3] == code
            if code == "451":
                assert house.reasons()[0] == "greylist"
                clock.advance(settings.greylist_delay)
                assert (await client.say("RCPT TO:<b@example.com>"))[:3] == "250"
        greylist.close()
