"""`queue migrate`: mail from one store to another, whatever they are, while no server runs on either.

A message is copied and durable in the target, read back from there and compared, and only then removed from
the source. So a kill leaves each message in the source, in the target, or in both; the next run compares what
is in both, and removes it from the source. A message keeps its SPID, and all else that its records say. Where
the target has another message of its SPID it stays in the source.

The target counts each recipient as accepted, the source as discarded for the reason "migrated", which takes
the acceptance back. So the events of each store balance, and those of both together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from mqcd.config.settings import CLUSTER, Settings
from mqcd.core.errors import ConfigError, StoreDamaged
from mqcd.core.model import Recipient
from mqcd.core.ports import Clock
from mqcd.core.progress import Progress, no_progress
from mqcd.core.queueing.spid import format_spid
from mqcd.core.value import value
from mqcd.daemon.derived import options_of, schedule_of
from mqcd.daemon.hashkey import hash_key
from mqcd.daemon.migration.ends import End, cluster_end, stored_end
from mqcd.daemon.storing import make_stored
from mqcd.ops.fanout import Fanout

PORTION = 500
"""Messages that are copied before they are removed from the source, where both ends can."""


@value(kw_only=False)
class Configured:
    """A store, by the configuration of a server that uses it."""

    settings: Settings
    conf: Path | None = None


@dataclass(slots=True)
class Migrated:
    """What came of it. Messages."""

    found: int = 0
    moved: int = 0
    """Not in the source any more; ones that an earlier run has copied count too."""
    skipped: dict[int, str] = field(default_factory=dict)
    """By SPID, why it stays in the source."""


async def migrate(
    source: Configured, target: Configured, clock: Clock, progress: Progress = no_progress
) -> Migrated:
    """Move all mail. Raises ConfigError, StoreBusy, StoreDamaged, StoreUnavailable, OSError."""
    _check_others(source.settings, target.settings)
    async with end_of(source, clock, must_be=True) as begin, end_of(target, clock) as end:
        return await Migration(begin, end, progress).run()


def end_of(
    configured: Configured, clock: Clock, *, must_be: bool = False
) -> AbstractAsyncContextManager[End]:
    """A store of a configuration. `must_be`: a clustered-file queue must be there already."""
    settings, conf = configured.settings, configured.conf
    options = options_of(settings, schedule_of(settings), hash_key(settings.ops.events, conf))
    if settings.queue.store.kind == CLUSTER:
        return cluster_end(options, clock, must_be=must_be)
    return stored_end(make_stored(settings.queue.store, options, clock, Fanout(), conf))


def _check_others(source: Settings, target: Settings) -> None:
    """Raises ConfigError where both are one store, or keep nothing."""
    ones, others = source.queue, target.queue
    same = ones.store == others.store
    if same and (ones.store.kind != CLUSTER or ones.rootpath.resolve() == others.rootpath.resolve()):
        raise ConfigError("source and target are one store: name two configurations with different ones")
    for queue in (ones, others):
        if queue.store.kind == "memory":
            raise ConfigError("the store memory keeps nothing when no server runs")


@value(kw_only=False)
class Migration:
    """From one open store to another."""

    source: End
    target: End
    progress: Progress = no_progress

    async def run(self) -> Migrated:
        """Move all mail."""
        messages = dict(sorted(self.source.messages.items()))
        done = Migrated(found=len(messages))
        portion = PORTION if self.source.in_portions and self.target.in_portions else max(len(messages), 1)
        spids = list(messages)
        for start in range(0, len(spids), portion):
            await self._move(messages, spids[start : start + portion], done)
        return done

    async def _move(
        self, messages: Mapping[int, Mapping[int, Recipient]], spids: Sequence[int], done: Migrated
    ) -> None:
        there = [spid for spid in spids if spid in self.target.messages]
        new = [spid for spid in spids if spid not in self.target.messages]
        self.progress("copying", done.moved, done.found)
        await self.target.add([list(messages[spid].values()) for spid in new], self.source)
        copied: list[int] = []
        for spid in (*there, *new):
            self.progress("comparing", done.moved + len(copied), done.found)
            if differs := await self._difference(messages[spid], spid):
                if spid in new:
                    raise StoreDamaged(f"message {format_spid(spid)} was copied, but {differs}")
                done.skipped[spid] = f"the target has another message of this SPID: {differs}"
            else:
                copied.append(spid)
        self.progress("removing", done.moved, done.found)
        await self.source.remove([list(messages[spid].values()) for spid in copied])
        done.moved += len(copied)

    async def _difference(self, ours: Mapping[int, Recipient], spid: int) -> str:
        """How the target's message differs; it may have recipients that an earlier run has moved."""
        theirs = self.target.messages[spid]
        for qid, recipient in ours.items():
            if qid not in theirs or replace(theirs[qid], linked=False) != replace(recipient, linked=False):
                return f"the record of recipient {qid} is not the same"
        one = next(iter(ours.values()))
        if await _digest(self.source, one) != await _digest(self.target, theirs[one.qid]):
            return "its content is not the same"
        return ""


async def _digest(end: End, recipient: Recipient) -> bytes:
    digest = hashlib.sha256()
    async for chunk in end.read(recipient):
        digest.update(chunk)
    return digest.digest()
