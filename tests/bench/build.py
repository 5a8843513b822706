"""Fills a queue with deferred mail by the engine's own means: accepted, tried and put off.

Nine recipients of ten belong to messages with 50 recipients, one has a message of its own. Due times are
those of mail that has been failing for hours, so that about one in twelve is due already.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.core.queueing.transition import after
from mqcd.queue.format import record
from mqcd.queue.store import ClusterStore
from tests.bench import kit

SEVERAL = 50
_ROUND = 20
"""Messages with several recipients that are accepted at once."""
_FULL_S = 0.1


@dataclass(slots=True)
class Built:
    """What was put in."""

    messages: int = 0
    content: int = 0
    """Octets, once per message."""
    recipients: int = 0
    records: int = 0
    """Octets of the deferred records, estimated from a sample."""


async def fill(made: ClusterStore, recipients: int, octets: int) -> Built:
    """Add deferred recipients, at least so many."""
    chance = random.Random(recipients)
    built = Built()
    while built.recipients < recipients:
        sizes = [SEVERAL] * _ROUND + [1] * (SEVERAL * _ROUND // 9)
        await asyncio.gather(*(enqueue(made, octets, size) for size in sizes))
        built.messages += len(sizes)
        built.content += len(sizes) * octets
        await _put_off(made, sum(sizes), chance, built)
    return built


async def enqueue(made: ClusterStore, octets: int, recipients: int) -> None:
    """Accept a message; a full journal is waited for as a client would, by trying again."""
    while True:
        try:
            await made.enqueue(kit.message(made, octets, recipients))
        except StoreUnavailable:
            await asyncio.sleep(_FULL_S)
        else:
            return


async def _put_off(made: ClusterStore, count: int, chance: random.Random, built: Built) -> None:
    change = kit.Change(made)
    while count:
        # Nothing that has been put off is due at such a time: only new mail is handed out.
        found = await made.claim(min(count, 500), 1)
        if not found:
            await change.wait()
            continue
        count -= len(found)
        await made.begin(found, "mx.example.net")
        now = int(time.time() * 1000)
        settlements = [kit.deferred(recipient, kit.retry_time(chance, now)) for recipient in found]
        await made.settle(settlements)
        built.recipients += len(found)
        built.records += len(found) * _record_size(found[0], now)


def _record_size(recipient: Recipient, now: int) -> int:
    following = after(recipient, kit.deferred(recipient, now).verdict)
    return len(record.encode(following)) if following is not None else 0
