"""The tokens that are valid now, kept up to date with their file, and when each was last used.

A file that is missing has no tokens. One that has become unreadable or has a wrong line is logged once for
each of its states; the tokens that were read before stay. A token that is removed is refused within LOOK_MS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from mqcd.core.events import format_time
from mqcd.core.ports import Clock
from mqcd.disk.durable import Disk, describe
from mqcd.disk.private import Version, version_of
from mqcd.page.access.file import read_tokens, read_uses, write_uses
from mqcd.page.access.tokens import BadTokens, Token

log = logging.getLogger(__name__)

LOOK_MS = 1_000
"""The file is looked at so often."""
SAVE_MS = 60_000
"""Last uses are written so often at most; the time of one is that exact."""


class Holders:
    """The tokens of one file."""

    def __init__(self, path: Path, clock: Clock, disk: Disk) -> None:
        self._path = path
        self._clock = clock
        self._disk = disk
        self._by_digest: Mapping[str, Token] = {}
        self._version: Version | None = None
        self._looked: int | None = None
        self._uses: dict[str, str] = {}
        self._unsaved = False

    def find(self, digest: str) -> Token | None:
        """The valid token with this digest; it counts as used."""
        self._look()
        token = self._by_digest.get(digest)
        if token is not None:
            self._uses[digest] = format_time(self._clock.now())
            self._unsaved = True
        return token

    async def run(self) -> None:
        """Write last uses, until cancelled."""
        while True:
            await self._clock.sleep(SAVE_MS)
            await self.save()

    async def save(self) -> None:
        """Write the last uses, if there are new ones. A failure is logged."""
        if not self._unsaved:
            return
        self._unsaved = False
        uses = {**read_uses(self._path), **self._uses}
        kept = {digest: at for digest, at in uses.items() if digest in self._by_digest}
        try:
            await asyncio.to_thread(write_uses, self._path, kept, self._disk)
        except OSError as error:
            log.warning("last uses of tokens cannot be written: %s", describe(error))

    def _look(self) -> None:
        now = self._clock.monotonic()
        if self._looked is not None and now - self._looked < LOOK_MS:
            return
        self._looked = now
        version = version_of(self._path)
        if version == self._version:
            return
        self._version = version
        if version is None:
            self._by_digest = {}
            return
        try:
            tokens, self._version = read_tokens(self._path)
        except BadTokens as error:
            log.error("the old tokens stay: %s", error)
        else:
            self._by_digest = {each.digest: each for each in tokens.values()}
