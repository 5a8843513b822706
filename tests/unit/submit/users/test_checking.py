"""Passwords are checked in few threads, and a flood is refused at once."""

from __future__ import annotations

import asyncio

import pytest

from mqcd.submit.users.checking import MOST, MOST_OF_CLIENT, Checker, LoginsBusy
from mqcd.submit.users.passwords import hash_password

HASH = hash_password("right")


async def test_a_password_is_checked() -> None:
    checker = Checker()
    assert await checker.verify("192.0.2.1", HASH, "right")
    assert not await checker.verify("192.0.2.1", HASH, "wrong")
    checker.close()


async def test_one_client_has_a_part_of_the_queue() -> None:
    checker = Checker()
    checks = [checker.verify("192.0.2.1", HASH, "wrong") for _ in range(MOST_OF_CLIENT + 1)]
    other = checker.verify("192.0.2.2", HASH, "right")
    *results, good = await asyncio.gather(*checks, other, return_exceptions=True)
    assert [type(result) for result in results] == [bool] * MOST_OF_CLIENT + [LoginsBusy]
    assert good is True
    checker.close()


async def test_a_flood_is_refused_at_once() -> None:
    checker = Checker()
    flood = [asyncio.ensure_future(checker.verify(f"192.0.2.{n}", HASH, "")) for n in range(MOST)]
    await asyncio.sleep(0)
    with pytest.raises(LoginsBusy):
        await checker.verify("198.51.100.1", HASH, "right")
    assert not any(await asyncio.gather(*flood))
    assert await checker.verify("198.51.100.1", HASH, "right")
    checker.close()
