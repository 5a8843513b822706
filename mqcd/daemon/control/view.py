"""A queue in another store than the clustered-file queue, as commands see it: by its server, else by itself.

Without a server the store is opened for the time of the look, and nothing in it is changed.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import TypeVar

from mqcd.config.settings import Settings
from mqcd.core.errors import ConfigError, ContentUnavailable, MqcdError
from mqcd.core.model import Area, AreaStats, Recipient
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.looking import CONTENT, MOMENT, RECORDS, UNFILED
from mqcd.daemon.control.selections import selection_fields
from mqcd.daemon.storing import backend_of
from mqcd.disk.durable import Disk
from mqcd.eventlog.history import event_needle
from mqcd.net.control.client import Control, NoAccess, NoAnswer
from mqcd.queue.format import record
from mqcd.queue.reading.snapshot import Item, Unreadable
from mqcd.stores.backend import Backend
from mqcd.stores.queue.exporting import EventFiles, newest_file
from mqcd.stores.queue.figures import Figures
from mqcd.stores.queue.message import Message, decode
from mqcd.stores.queue.moment import IN_FLIGHT, WAITS, Moment, unpack

_ASK_S = 600
_TAKEN_AT_ONCE = 1000
_CHUNK = 1 << 18
_MARGIN_S = 1.0
"""A server may renew its lease so long after it has been killed: the store has got that late."""

Made = TypeVar("Made")


class View(ABC):
    """What `queue.reading.shards.Snapshots` offers to commands."""

    damage = left_out = 0
    unreadable = Unreadable()
    """Nothing is left out: a document that cannot be read is an error."""

    @abstractmethod
    def items(self, selection: Selection) -> list[Item]:
        """The recipients that are selected."""

    def batches(self, selection: Selection) -> Iterator[list[Item]]:
        """The same."""
        yield self.items(selection)

    def project(self, selection: Selection, make: Callable[[str, bool], Made]) -> Iterator[list[Made]]:
        """What `make` makes of the text of each record, and of whether it is in flight."""
        found = self.items(selection)
        yield [make(record.verify(record.encode(each.recipient)), each.in_flight) for each in found]

    def stats(self) -> dict[Area, AreaStats]:
        """What each area holds."""
        figures = Figures()
        for each in self.items(Selection()):
            figures.replace(None, each.recipient)
        return dict(figures.stats())

    @abstractmethod
    def content(self, spid: int, _recipient: Recipient | None = None) -> Iterator[bytes]:
        """A message's octets. Raises ContentUnavailable."""

    @abstractmethod
    def events(self, spid: int) -> Sequence[bytes]:
        """Events of a message that are in no event file, perhaps others as well."""

    @abstractmethod
    def moment(self, files: EventFiles) -> Moment:
        """All of it, and the events that are in none of the files. Raises StoreBusy, StoreUnavailable,
        OSError."""

    @abstractmethod
    def close(self) -> None:
        """Let it go."""


def view_of(settings: Settings, conf: Path | None) -> View:
    """The queue of a configuration.

    Raises ConfigError, NoAnswer, StoreBusy, StoreDamaged, StoreUnavailable.
    """
    server = _ByServer(Control(settings.ops.control.path))
    try:
        server.items(Selection(limit=0))
    except NoAccess:
        raise
    except NoAnswer as error:
        if settings.queue.store.kind == "memory":
            raise ConfigError(f"{error}; the store memory has mail in its server alone") from error
        return _ByItself(backend_of(settings.queue.store, conf))
    return server


class _ByServer(View):
    def __init__(self, control: Control) -> None:
        self._control = control

    def items(self, selection: Selection) -> list[Item]:
        lines = self._ask(RECORDS, selection_fields(selection)).splitlines(keepends=True)
        return [Item(record.decode(line[1:]), line.startswith(IN_FLIGHT)) for line in lines]

    def content(self, spid: int, _recipient: Recipient | None = None) -> Iterator[bytes]:
        at = 0
        while piece := self._ask(f"{CONTENT}?spid={format_spid(spid)}&at={at}", {}):
            yield piece
            at += len(piece)

    def events(self, spid: int) -> Sequence[bytes]:
        return self._ask(f"{UNFILED}?spid={format_spid(spid)}", {}).splitlines()

    def moment(self, _files: EventFiles) -> Moment:
        return unpack(self._ask(MOMENT, {}))

    def _ask(self, path: str, fields: dict[str, object]) -> bytes:
        status, body = self._control.post_for_octets(path, fields, _ASK_S)
        if status == HTTPStatus.OK:
            return body
        text = body.decode("utf-8", "replace").strip()
        if path.startswith(CONTENT):
            raise ContentUnavailable(text)
        raise MqcdError(f"the server says: {text}")

    def close(self) -> None:
        """Each question has a connection of its own."""


class _ByItself(View):
    """Owns the store until it is closed."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._runner = asyncio.Runner()
        self._messages: dict[int, Message] = {}
        self._renewed = 0.0
        """When the lease was last renewed, by the loop's time."""
        try:
            self._runner.run(self._read())
        except BaseException:
            self._runner.close()
            raise

    async def _read(self) -> None:
        self._renewed = asyncio.get_running_loop().time()
        await self._backend.open()
        try:
            await self._take()
        except BaseException:
            await self._backend.close()
            raise

    async def _take(self) -> bool:
        """Read all messages that are free. Returns whether the lease has run out meanwhile."""
        any_lost, third_s = False, self._backend.lease_ms / 3000
        # None: there may be more.
        while (taken := await self._backend.take(_TAKEN_AT_ONCE)) is None or taken:
            self._messages |= {stored.spid: decode(stored) for stored in taken or ()}
            if third_s and asyncio.get_running_loop().time() - self._renewed >= third_s:
                any_lost |= await self._renew()
        return any_lost

    async def _renew(self) -> bool:
        """Returns whether the lease had run out: then all messages are to be taken again."""
        at = asyncio.get_running_loop().time()
        if any_lost := await self._backend.renew() is not None:
            self._messages.clear()
        self._renewed = at
        return any_lost

    def _recipients(self) -> Iterator[Recipient]:
        for _, message in sorted(self._messages.items()):
            for _, each in sorted(message.records.items()):
                yield each

    def items(self, selection: Selection) -> list[Item]:
        found = (Item(each, False) for each in self._recipients() if selection.matches(each))
        return list(islice(found, selection.limit))

    async def _outlast(self, lease_s: float) -> None:
        """Take what a server has left that was killed a moment ago, when its lease has run out."""
        loop = asyncio.get_running_loop()
        end, over = loop.time() + lease_s + _MARGIN_S, not lease_s
        while not over:
            await asyncio.sleep(min(1.0, lease_s / 3))
            # What is taken from then on is the last.
            over = loop.time() >= end
            any_lost = await self._renew()
            if await self._take() or any_lost:
                end, over = loop.time() + lease_s + _MARGIN_S, False

    def _lines(self) -> Iterator[bytes]:
        for message in self._messages.values():
            yield from message.events.values()

    def events(self, spid: int) -> Sequence[bytes]:
        needle = event_needle(spid)
        return [line for line in self._lines() if needle in line]

    def moment(self, files: EventFiles) -> Moment:
        self._runner.run(self._outlast(self._backend.lease_ms / 1000))
        newest, written = newest_file(Disk(), files)
        known = set(written)
        return Moment(
            records=[WAITS + record.encode(each) for each in self._recipients()],
            newest=newest,
            events=[line for line in self._lines() if line not in known],
            shared=self._backend.promises.shared,
        )

    def content(self, spid: int, _recipient: Recipient | None = None) -> Iterator[bytes]:
        if spid not in self._messages:
            raise ContentUnavailable("no such message is in the queue")
        content = self._runner.run(self._backend.content(spid))
        try:
            while chunk := self._runner.run(content.read(_CHUNK)):
                yield chunk
        finally:
            content.close()

    def close(self) -> None:
        try:
            self._runner.run(self._backend.close())
        finally:
            self._runner.close()
