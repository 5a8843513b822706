"""A shared store that is looked at without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from mqcd.core.model import Envelope, Recipient
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.view import _ByItself
from mqcd.eventlog.files import Source
from mqcd.eventlog.retention import Retention
from mqcd.queue.format import record
from mqcd.stores.backend import Marks, Stored
from mqcd.stores.queue.exporting import EventFiles
from mqcd.stores.queue.message import encode
from tests.fakes.shared_store import SharedStore, SharedWorld


def _stored(spid: int) -> Stored:
    envelope = Envelope(spid=spid, sender="", received=0)
    recipient = Recipient(envelope=envelope, size=1, qid=1, address="a@example.org")
    return Stored(spid=spid, values={1: encode(recipient, False)})


class Slow(SharedStore):
    """Its own lease runs out once; then it is given all mail again, and that of a dead server."""

    lease_ms = 30

    def __init__(self) -> None:
        super().__init__(SharedWorld())
        self.renewals = 0
        self.given = [_stored(2)]

    async def renew(self) -> Marks | None:
        self.renewals += 1
        if self.renewals != 2:
            return None
        self.given = [_stored(2), _stored(4)]
        return {}

    async def take(self, most: int) -> Sequence[Stored]:
        given, self.given = self.given, []
        return given


class Scanning(SharedStore):
    """It looks at messages of living nodes first, each time for longer than a third of its lease."""

    lease_ms = 3

    def __init__(self) -> None:
        super().__init__(SharedWorld())
        self.renewals = 0
        self.answers: list[Sequence[Stored] | None] = [[_stored(2)], None, None, [_stored(4)], []]

    async def renew(self) -> Marks | None:
        self.renewals += 1
        return None

    async def take(self, most: int) -> Sequence[Stored] | None:
        await asyncio.sleep(0.002)
        return self.answers.pop(0)


def test_a_look_goes_on_where_a_take_has_found_none_yet() -> None:
    store = Scanning()
    reader = _ByItself(store)
    found = [each.recipient.spid for each in reader.items(Selection())]
    reader.close()
    assert found == [2, 4]
    assert store.renewals == 4


def test_mail_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    reader = _ByItself(Slow())
    files = EventFiles(directory=tmp_path, source=Source("n", 0), retention=Retention())
    moment = reader.moment(files)
    reader.close()
    assert [record.decode(line[1:]).spid for line in moment.records] == [2, 4]
