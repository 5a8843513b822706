"""One feed: reads, sends, and notes how far it has come; waits where there is nothing, or the receiver fails.

Waits between attempts grow from a second to half an hour, each with up to a quarter of it less, so that feeds
do not come back all at once. A feed never gives up: its events wait as files, as long as the event log's
retention lets them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from mqcd.core.errors import StoreDamaged
from mqcd.core.ports import Clock
from mqcd.core.value import value
from mqcd.disk.durable import describe
from mqcd.feeds.position import SIGN_MS, Position, Positions
from mqcd.feeds.reader import Chooses, Portion, Reader
from mqcd.feeds.sink import NotTaken, Sink

log = logging.getLogger("mqcd.feeds")

LOOK_MS = 1000
"""How often the event log is looked at when there is nothing to send."""
FIRST_WAIT_MS, LONGEST_WAIT_MS = 1000, 1_800_000
_AGAIN_MS = 60_000
"""How long after a failure of the disk a feed begins again."""
MOST_OCTETS = 1 << 20
"""Of the events of a portion, about."""


@value
class Terms:
    """What a feed is."""

    name: str
    most: int
    """Events of a portion."""
    chooses: Chooses
    from_start: bool = False
    """Whether a new feed begins with the oldest event, not with the next one."""


class Feed:
    """Runs until it is cancelled."""

    def __init__(
        self,
        terms: Terms,
        sink: Sink,
        reader: Reader,
        positions: Positions,
        clock: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._terms = terms
        self._sink = sink
        self._reader = reader
        self._positions = positions
        self._clock = clock
        self._chance = chance
        self._position: Position | None = None
        """The newest, whether it is saved or not; None until it is known."""
        self._saved = 0

    async def run(self) -> None:
        """Send what there is and what comes."""
        try:
            while True:
                try:
                    await self._go_on()
                except (OSError, StoreDamaged) as error:
                    why = describe(error) if isinstance(error, OSError) else str(error)
                    log.error("feed %s: %s; it is tried again", self._terms.name, why)
                except Exception as error:
                    # A fault in one feed must not end the others.
                    log.exception("feed %s failed; it is tried again", self._terms.name)
                    why = f"{type(error).__name__}: {error}"
                await self._note(why)
                await self._clock.sleep(_AGAIN_MS)
        finally:
            await self._sink.close()

    def _begin(self) -> Position:
        position = self._positions.load(self._terms.name)
        if position is None:
            position = Position() if self._terms.from_start else self._reader.newest()
        return position

    async def _save(self, position: Position) -> None:
        """Durable on return. Raises OSError; then `_go_on` saves it before anything more is sent."""
        self._position = position
        await asyncio.to_thread(self._positions.save, self._terms.name, position)
        self._saved = self._clock.monotonic()

    async def _note(self, why: str) -> None:
        """Why it does not go on. Where that cannot be saved, the age of the last save shows it. That must not
        end the feeds: `_go_on` saves first, too, and its failure is logged."""
        if (position := self._position) is not None:
            with suppress(Exception):
                await self._save(replace(position, error=why, since=position.since or self._clock.now()))

    async def _go_on(self) -> NoReturn:
        terms = self._terms
        position = self._position
        if position is None:
            position = await asyncio.to_thread(self._begin)
        await self._save(position)
        while True:
            portion = await asyncio.to_thread(
                self._reader.read, position, terms.chooses, terms.most, MOST_OCTETS
            )
            if portion is None:
                if position.since or self._clock.monotonic() - self._saved >= SIGN_MS:
                    position = replace(position, error="", since=0)
                    await self._save(position)
                await self._clock.sleep(LOOK_MS)
                continue
            self._warn(portion, position)
            position = await self._send(portion, position) if portion.lines else portion.after
            await self._save(position)

    def _warn(self, portion: Portion, position: Position) -> None:
        if portion.damaged:
            log.error("feed %s: events are left out: %s", self._terms.name, portion.damaged)
        if portion.after.gaps > position.gaps:
            text = "feed %s: event files were removed before they were sent; ops/events sets maxage, maxsize"
            log.error(text, self._terms.name)

    async def _send(self, portion: Portion, position: Position) -> Position:
        """Hand a portion over, however long that takes; gives the position behind it. Raises OSError."""
        wait = FIRST_WAIT_MS
        since = position.since
        after = portion.after
        while True:
            try:
                await self._sink.send(portion.lines)
            except NotTaken as error:
                text = str(error)
                since = since or self._clock.now()
                log.warning(
                    "feed %s: %d events are not taken: %s", self._terms.name, len(portion.lines), text
                )
                # Files that come meanwhile may be removed before it is their turn.
                position, after = await asyncio.to_thread(
                    lambda *both: tuple(map(self._reader.marked, both)), position, after
                )
                await self._save(replace(position, error=text, since=since))
                await self._clock.sleep(max(int(wait * (1 - self._chance() / 4)), error.wait_ms))
                wait = min(wait * 2, LONGEST_WAIT_MS)
            else:
                if since:
                    log.warning("feed %s: its events are taken again", self._terms.name)
                return replace(after, error="", since=0)
