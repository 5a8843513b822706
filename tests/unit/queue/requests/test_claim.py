"""Claims: what becomes of a record that cannot be read."""

from __future__ import annotations

import errno
import os

import pytest

from mqcd.core.model import Recipient
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.wal.segments import JournalEntry
from tests.contract.harness import HOUR
from tests.unit.queue.support import Rig

DOMAIN = "a.atrn.example"


async def test_a_resting_record_that_cannot_be_read_is_put_off(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.post.send(f"a@{DOMAIN}")

    async def sick(shard: Shard, entry: JournalEntry) -> Recipient:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for entry in [each for segment in rig.shard.ring for each in segment.entries.values()]:
        entry.recipient = None
    with monkeypatch.context() as patch:
        patch.setattr(Shard, "recipient", sick)
        assert not await rig.store.claim_held(DOMAIN, 1)
    due = rig.store.next_due()
    assert due is not None
    assert rig.clock.now() < due < rig.clock.now() + HOUR
