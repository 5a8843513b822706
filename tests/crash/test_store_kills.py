"""A process with a store of files, or the queue embedded, is killed again and again: all it said is true."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.mail import Post
from tests.crash.store_worker import CONTENT, STORES, opened
from tests.fakes.clock import FakeClock

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(300)]

LIVES = 4
Key = tuple[int, int]


def live(name: str, path: Path, lines: int) -> dict[Key, str]:
    """What one life said of each recipient, until it was killed."""
    command = [sys.executable, "-m", "tests.crash.store_worker", name, str(path)]
    said: list[bytes] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said += [process.stdout.readline() for _ in range(lines)]
        process.kill()
        said += process.stdout.readlines()
    told: dict[Key, str] = {}
    for line in said:
        if line.endswith(b"\n"):
            word, spid, number = line.decode().split()
            key = int(spid), int(number)
            told[key] = told.get(key, "") + word
    assert all(said[:lines]), "it ended by itself"
    return told


@pytest.mark.parametrize("name", STORES)
async def test_kills(tmp_path: Path, name: str) -> None:
    chance = random.Random(1000)
    told: dict[Key, str] = {}
    for _ in range(LIVES):
        for key, words in live(name, tmp_path, chance.randint(30, 300)).items():
            told[key] = told.get(key, "") + words
        async with opened(name, tmp_path, FakeClock()) as queue:
            post = Post(queue, FakeClock())
            there = await post.scan()
            lost = {key for key, words in told.items() if words.endswith("A") and key not in there}
            back = {key for key, words in told.items() if words.endswith("D") and key in there}
            assert (lost, back) == (set(), set())
            for each in there.values():
                assert await post.read(each) == CONTENT
    assert any(words.endswith("A") for words in told.values())
    assert any(words.endswith("D") for words in told.values())
