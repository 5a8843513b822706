"""What batches have still to do to mail that was in flight, on disk: a start goes on with it.

Delivery has it in memory, see `deliver.reaching`. The file is written before a batch with such mail counts as
done, and again as this becomes less. A kill may leave some in it that was done since: these recipients bear
the batch's mark, by which no batch changes them twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mqcd.core.errors import DecodeError
from mqcd.core.model import Batch
from mqcd.core.queueing.spid import format_spid, parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.actions.orders import Order, parse_order
from mqcd.deliver.reaching import Pending
from mqcd.disk.durable import Disk

log = logging.getLogger(__name__)


class Following:
    """The file of one process."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._written: list[Pending] = []
        self._noting = asyncio.Lock()
        self.reach: Callable[[Collection[tuple[int, int]], Batch, Selection], None] = lambda *_: None
        """Has a batch on a selection reach these (SPID, QID) in flight. Set where mail is delivered."""
        self.pending: Callable[[], Sequence[Pending]] = tuple
        """What batches have still to do. Set with it."""

    async def recall(self) -> None:
        """Before anything is claimed: have the batches of earlier runs reach what was in flight then. A file
        that cannot be understood is logged, and counts as empty."""
        try:
            self._written = [_pending(each) for each in json.loads(self._disk.read_file(self._path))]
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AttributeError, KeyError, DecodeError) as error:
            log.error("%s: mail that was in flight does not follow its batches: %s", self._path, error)
            return
        for batch, selection, keys in self._written:
            self.reach(keys, batch, selection)

    async def note(self) -> None:
        """Make what is pending durable, if it has changed. Raises OSError."""
        async with self._noting:
            await asyncio.to_thread(self._write, list(self.pending()))

    def _write(self, pending: list[Pending]) -> None:
        if pending == self._written:
            return
        self._disk.mkdir(self._path.parent)
        self._disk.replace_file(self._path, _chunks(pending))
        self._written = pending


def _chunks(pending: Sequence[Pending]) -> Iterator[bytes]:
    for place, (batch, selection, keys) in enumerate(pending):
        named = [f"{format_spid(spid)}/{qid}" for spid, qid in keys]
        fields = {**Order(batch=batch, selection=selection).fields(), "keys": named}
        yield (b",\n" if place else b"[") + json.dumps(fields).encode()
    yield b"]\n" if pending else b"[]\n"


def _pending(fields: Mapping[str, Any]) -> Pending:
    known = dict(fields)
    keys = [each.split("/") for each in known.pop("keys")]
    order = parse_order(known)
    return order.batch, order.selection, [(parse_spid(spid), int(qid)) for spid, qid in keys]
