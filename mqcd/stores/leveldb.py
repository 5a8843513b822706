"""Messages in LevelDB, in one directory.

Keys, as text: `message <SPID> <number>` is a chunk of the content (64 KB, numbers from 000001 on);
`message <SPID> #` says that the message is there, with the time of its acceptance; `message <SPID> *` are its
due time and zone; `delivery-zone <ZONE> <SPID> <qid>` is a recipient, so that a start walks them by zone and
age. All keys of a message go with its last recipient. `mark <name>` is a number.

A write is one batch, synced: whole or not at all. Content comes before its message; chunks of a message that
never came are collected by the next start.

Promises: synced. One process has the directory at a time: LevelDB's own lock says so.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import plyvel  # type: ignore[import-not-found, import-untyped, unused-ignore]

from mqcd.core.content import MemoryContent
from mqcd.core.errors import ContentUnavailable, MqcdError, StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.core.ports import Content
from mqcd.core.queueing.spid import format_spid, parse_spid, time_of
from mqcd.disk.durable import Disk
from mqcd.stores.backend import Change, Exclusive, Marks, Promises, Stored, StoreFull, Write
from mqcd.stores.chunked import ChunkedContent, cut, cut_anew
from mqcd.stores.file_contents import Threads

CHUNK = 1 << 16
"""Octets of a chunk of content."""
_AT_ONCE = 16
"""Content of so many chunks is read as one; longer ones are read from a snapshot."""
_MARK, _MESSAGE, _ZONE = b"mark ", b"message ", b"delivery-zone "
_THERE, _META = b"#", b"*"
_VERIFIED: Mapping[str, Any] = {"verify_checksums": True}
"""Of each read of a value."""
_NO_ZONE = b"default"
"""Stands for mail that no header sends to a zone."""


def _message(spid: int, last: bytes = b"") -> bytes:
    return b"%b%b %b" % (_MESSAGE, format_spid(spid).encode(), last)


def _chunk(spid: int, number: int) -> bytes:
    return _message(spid, b"%06d" % (number + 1))


def _recipient(zone: bytes, spid: int, qid: int) -> bytes:
    return b"%b%b %b %010d" % (_ZONE, zone, format_spid(spid).encode(), qid)


def _found(db: Any, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Keys with a prefix, from `start` on, and their values. LevelDB counts a damaged block as an empty one,
    and plyvel's other iterators raise nothing where they begin in it."""
    iterator = db.raw_iterator(**_VERIFIED)
    iterator.seek(start or prefix)
    while iterator.valid() and (key := iterator.key()).startswith(prefix):
        yield key, iterator.value()
        iterator.next()


def _removable(db: Any, prefix: bytes) -> Iterator[bytes]:
    """Keys with a prefix. Values are not read; keys in a damaged block may be missing."""
    with suppress(plyvel.CorruptionError):
        yield from db.iterator(prefix=prefix, include_value=False)


@contextmanager
def _failures(path: Path, damage: type[MqcdError] = StoreUnavailable) -> Iterator[None]:
    """Turns LevelDB's errors into StoreUnavailable, in the thread; its IOError is an OSError without number.
    `damage`: what is raised for damage; a start fails by it, a queue that runs tries again."""
    try:
        yield
    except plyvel.CorruptionError as error:
        raise damage(f"{path}: {error}") from error
    except plyvel.Error as error:
        full = os.strerror(errno.ENOSPC) in str(error)
        raise (StoreFull if full else StoreUnavailable)(f"{path}: {error}") from error


class LeveldbStore(Exclusive):
    """`backend.Backend` in LevelDB. `rootpath`: its directory, which is made if it is missing."""

    promises = Promises(synced=True, atomic=True, shared=False)

    def __init__(self, rootpath: Path) -> None:
        self._path = rootpath
        self._db: Any = None
        self._threads = Threads(1, "mqcd-leveldb")
        self._left: Iterator[Stored] = iter(())
        """Messages that were not taken yet."""
        self._zones: dict[int, bytes] = {}
        """Of messages that have another than `_NO_ZONE`: no write reads what may be damaged."""

    async def _run(self, work: Any, *arguments: Any) -> Any:
        """Do it in the thread. Raises StoreUnavailable, and StoreDamaged where `work` does."""
        if self._db is None:
            raise StoreUnavailable("the store leveldb is not open")
        return await self._threads.run(self._do, work, *arguments)

    def _do(self, work: Any, *arguments: Any) -> Any:
        with _failures(self._path):
            return work(*arguments)

    # ------------------------------------------------------------ open and close

    async def open(self) -> Marks:
        """Collect what never became a message. Raises StoreBusy, StoreDamaged."""
        self._threads = Threads(1, "mqcd-leveldb")
        try:
            return await self._threads.run(self._open)
        except BaseException:
            await self.close()
            raise

    def _open(self) -> Marks:
        Disk().mkdir(self._path)
        with _failures(self._path, StoreDamaged):
            try:
                self._db = plyvel.DB(str(self._path), create_if_missing=True)
            except plyvel.IOError as error:
                if "lock" in str(error).lower():
                    raise StoreBusy(f"{self._path} belongs to another process") from error
                raise
            return self._collect()

    def _collect(self) -> Marks:
        known = {spid for spid, last in self._keys() if last == _THERE}
        with self._db.write_batch(sync=True) as batch:
            for spid, last in self._keys():
                if spid not in known:
                    batch.delete(_message(spid, last))
        self._left = self._messages()
        marks = _found(self._db, _MARK)
        return {name.removeprefix(_MARK).decode(): int(number) for name, number in marks}

    def _keys(self) -> Iterator[tuple[int, bytes]]:
        """SPID and last word of all keys of messages."""
        for key, _ in _found(self._db, _MESSAGE):
            name, _, last = key.removeprefix(_MESSAGE).partition(b" ")
            yield parse_spid(name.decode()), last

    async def close(self) -> None:
        """Release the directory."""
        self._left, self._zones = iter(()), {}
        db, self._db = self._db, None
        if db is not None:
            await self._threads.run(db.close)
        self._threads.close()

    # ------------------------------------------------------------ documents

    async def take(self, most: int) -> Sequence[Stored]:
        """Messages by zone and SPID."""
        taken: Sequence[Stored] = await self._run(self._take, most)
        return taken

    def _take(self, most: int) -> Sequence[Stored]:
        with _failures(self._path, StoreDamaged):
            return list(islice(self._left, most))

    def _messages(self) -> Iterator[Stored]:
        """As they were at the start: what comes later is known."""
        with self._db.snapshot() as snapshot:
            found = _found(snapshot, _ZONE)
            for head, group in groupby(found, key=lambda item: item[0].rpartition(b" ")[0]):
                zone, _, name = head.removeprefix(_ZONE).rpartition(b" ")
                spid = parse_spid(name.decode())
                if zone != _NO_ZONE:
                    self._zones[spid] = zone
                yield Stored(spid=spid, values={int(key.rpartition(b" ")[2]): value for key, value in group})

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        """One batch."""
        return asyncio.ensure_future(self._write(write))

    async def _write(self, write: Write) -> Sequence[int]:
        await self._run(self._write_batch, write)
        return ()

    def _write_batch(self, write: Write) -> None:
        with self._db.write_batch(sync=True, transaction=True) as batch:
            for name, number in write.marks.items():
                batch.put(_MARK + name.encode(), b"%d" % number)
            for change in write.changes:
                self._add(batch, change)
        # Not before: a write that failed comes again.
        for change in write.changes:
            if change.due is None:
                self._zones.pop(change.spid, None)

    def _add(self, batch: Any, change: Change) -> None:
        spid = change.spid
        if change.zone:
            self._zones[spid] = change.zone.encode()
        zone = self._zones.get(spid, _NO_ZONE)
        for qid in change.drops:
            batch.delete(_recipient(zone, spid, qid))
        if change.due is None:
            # Chunks that are passed over are collected by the start that follows a repair.
            for key in (_message(spid, _THERE), _message(spid, _META), *_removable(self._db, _message(spid))):
                batch.delete(key)
            return
        for qid, value in change.puts.items():
            batch.put(_recipient(zone, spid, qid), value)
        if change.content is not None:
            for number, piece in enumerate(cut(change.content, CHUNK)):
                batch.put(_chunk(spid, number), piece)
        if change.is_new:
            batch.put(_message(spid, _THERE), b"%d" % time_of(spid))
        batch.put(_message(spid, _META), b"%d %b" % (change.due, zone))

    # ------------------------------------------------------------ contents

    async def stage(self, spid: int, chunks: AsyncIterator[bytes]) -> int:
        """Chunks of a message that comes later. The batch that brings it syncs them, too."""
        size, number = 0, 0
        try:
            async with aclosing(cut_anew(chunks, CHUNK)) as pieces:
                async for piece in pieces:
                    await self._run(self._db.put, _chunk(spid, number), piece)
                    size, number = size + len(piece), number + 1
        except BaseException:
            await self.unstage(spid)
            raise
        return size

    async def unstage(self, spid: int) -> None:
        """See the port."""
        await self._run(self._unstage, spid)

    def _unstage(self, spid: int) -> None:
        if self._db.get(_message(spid, _THERE), **_VERIFIED) is None:
            for key in _removable(self._db, _message(spid)):
                self._db.delete(key)

    async def content(self, spid: int) -> Content:
        """Short content at once, long from a snapshot: it stays readable when its keys are gone."""
        try:
            content: Content = await self._run(self._content, spid)
        except StoreUnavailable as error:
            raise ContentUnavailable(str(error)) from error
        return content

    def _content(self, spid: int) -> Content:
        snapshot = self._db.snapshot()
        # Digits come behind "#" and "*".
        lengths = [len(piece) for _, piece in _found(snapshot, _message(spid), _chunk(spid, 0))]
        if not lengths:
            raise ContentUnavailable(f"no content of message {format_spid(spid)}")
        if len(lengths) > _AT_ONCE:
            name, read = f"message {format_spid(spid)}", partial(self._run, _read_chunk, snapshot, spid)
            return ChunkedContent(name, sum(lengths), CHUNK, read, snapshot.close)
        whole = b"".join([_read_chunk(snapshot, spid, number) for number in range(len(lengths))])
        snapshot.close()
        return MemoryContent(whole)


def _read_chunk(snapshot: Any, spid: int, number: int) -> bytes:
    """In the thread. Raises ContentUnavailable."""
    found = snapshot.get(_chunk(spid, number), **_VERIFIED)
    if found is None:
        raise ContentUnavailable(f"message {format_spid(spid)}: its content is cut off")
    return bytes(found)
