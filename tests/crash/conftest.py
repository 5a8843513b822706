"""What the crash tests share: the stories, recorded once for a test process, and what came of images."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.crash.matrix import Recoveries
from tests.crash.scenarios import STORIES, Told, killed_before_syncs, tell


@pytest.fixture
def quiet() -> Iterator[None]:
    """No log: a start after each of thousands of crashes has much to tell."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Library:
    """Stories, and what came of images; both are kept."""

    def __init__(self) -> None:
        self._recoveries = {links: Recoveries(links=links) for links in (False, True)}
        self._told: dict[str, Told] = {}
        self._lives: dict[str, list[Told]] = {}

    def of(self, told: Told) -> Recoveries:
        """What came of images of such a shard."""
        return self._recoveries[told.links]

    async def story(self, name: str) -> Told:
        if name not in self._told:
            self._told[name] = await tell(name)
        return self._told[name]

    async def lives(self, name: str) -> list[Told]:
        """The same, killed before each of its syncs and started again."""
        if name not in self._lives:
            self._lives[name] = await killed_before_syncs(await self.story(name))
        return self._lives[name]

    async def all_stories(self) -> list[Told]:
        return [await self.story(name) for name in STORIES]


@pytest.fixture(scope="session")
def library() -> Library:
    """One for all tests of this process."""
    return Library()
