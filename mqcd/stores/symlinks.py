"""Messages as directories, and a symbolic link for each recipient that says in which state it is.

    data/<mail>/contents           the octets
    data/<mail>/<dest>/metadata    a recipient as it was accepted
    data/<mail>/<dest>/schedule    the same as it was last changed; missing while it is as it was accepted
    data/<mail>/change             a change of several recipients that is being made
    queue, inflight, cleanup       <dest> -> ../data/<mail>/<dest>, in one of them

`<mail>` and `<dest>` are UUIDs (version 8) with the SPID; `<dest>` ends with the number of its value. A
recipient is inflight while an attempt has no verdict, and in cleanup while its files are removed.

What decides, and is synced, is one rename each: of `contents` for a new message, of a `schedule.<random>`
for a change of one recipient, of a `change.<random>` for a change of several, of the link to cleanup for an
end. All else follows from these: a start redoes a change, ends a cleanup, removes a message without contents,
and puts the other links where their recipients belong.

Promises: synced. A write of several messages may be kept in part. One process has the directory at a time.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mqcd.core.errors import StoreDamaged
from mqcd.disk.durable import Disk
from mqcd.stores import values
from mqcd.stores.backend import BEGUN, Change, Marks, Promises, Stored, Write
from mqcd.stores.file_contents import FileContent, FileStore, write_chunks
from mqcd.stores.files import spid_in, uuid_of

CONTENTS, STAGED, METADATA, SCHEDULE, CHANGE = "contents", "contents.staged", "metadata", "schedule", "change"
_MARKS = "queue.marks"
_NUMBER = 14
"""Digits at the end of a UUID that are the number of a value."""
_GONE = b"-\n"
"""What a `change` has for a recipient that ends. No value is as short."""


class Dest(NamedTuple):
    """A recipient, or another value of a message."""

    spid: int
    number: int

    @property
    def name(self) -> str:
        """Of its directory and its link."""
        return f"{uuid_of(self.spid)[:-_NUMBER]}{self.number:0{_NUMBER}x}"


class Touched(NamedTuple):
    """Values that change together; None = it ends."""

    spid: int
    values: Mapping[int, bytes | None]


def dest_of(name: str) -> Dest | None:
    """What a directory or link of this name is of; None for any other name."""
    spid = spid_in(f"{name[:-_NUMBER]}{'0' * _NUMBER}")
    try:
        found = Dest(spid, int(name[-_NUMBER:], 16)) if spid is not None else None
    except ValueError:
        return None
    return found if found is not None and found.number and found.name == name else None


class SymlinksStore(FileStore):
    """`backend.Backend` in directories below `rootpath`, which is made if it is missing.

    A new message with more recipients than `one_sync_above` is made durable with all else that its file
    system holds, in one call, not file by file.
    """

    promises = Promises(synced=True, atomic=False, shared=False)

    def __init__(self, rootpath: Path, *, one_sync_above: int = 100, disk: Disk | None = None) -> None:
        self._root = Path(rootpath)
        self._one_sync_above = one_sync_above
        self._data, self._queue, self._inflight, self._cleanup = (
            self._root / name for name in ("data", "queue", "inflight", "cleanup")
        )
        super().__init__(disk)

    def _mail(self, spid: int) -> Path:
        return self._data / uuid_of(spid)

    def _directory(self, dest: Dest) -> Path:
        return self._mail(dest.spid) / dest.name

    # ------------------------------------------------------------ open and close

    def _open(self) -> Marks:
        disk = self._disk
        for directory in (self._data, self._queue, self._inflight, self._cleanup):
            disk.mkdir(directory)
        self._lock(self._root)
        mails = [spid for name in disk.names(self._data) if (spid := spid_in(name)) is not None]
        for spid in mails:
            self._finish_change(spid)
        self._remove_ended(self._find(self._cleanup))
        there: set[Dest] = set()
        for spid in mails:
            there.update(self._find_values(spid))
        for directory in (self._queue, self._inflight):
            for dest in self._find(directory):
                if dest not in there:
                    raise StoreDamaged(f"{directory / dest.name} leads to no recipient")
        self._left = sorted({dest.spid for dest in there})
        path = self._root / _MARKS
        return values.unpack_marks(disk.read_file(path)) if disk.exists(path) else {}

    def _find(self, directory: Path) -> list[Dest]:
        """The links in a directory."""
        return [dest for name in self._disk.names(directory) if (dest := dest_of(name)) is not None]

    def _finish_change(self, spid: int) -> None:
        mail = self._mail(spid)
        names = self._disk.names(mail)
        if CONTENTS not in names:
            # It was not accepted, or its last recipients are being removed.
            self._remove_mail(mail)
            return
        for name in names:
            if name.startswith((STAGED, f"{CHANGE}.")):
                self._disk.unlink(mail / name)
        if CHANGE not in names:
            return
        try:
            document = values.unpack(self._disk.read_file(mail / CHANGE))
        except StoreDamaged as error:
            raise StoreDamaged(f"{mail / CHANGE}: {error}") from error
        touched = Touched(
            spid, {number: None if value == _GONE else value for number, value in document.items()}
        )
        self._put(touched)
        self._end([touched])
        self._forget(touched)

    def _find_values(self, spid: int) -> list[Dest]:
        """The values of a message; it and they are removed where they are not whole."""
        mail, found = self._mail(spid), []
        for dest in self._find(mail):
            if self._disk.exists(mail / dest.name / METADATA):
                found.append(dest)
            else:
                self._remove_directory(mail / dest.name)
        if not found:
            self._remove_mail(mail)
        return found

    # ------------------------------------------------------------ documents

    def _read(self, spid: int) -> Stored:
        found = {dest.number: self._value(dest) for dest in self._find(self._mail(spid))}
        return Stored(spid=spid, values=found)

    def _value(self, dest: Dest) -> bytes:
        directory = self._directory(dest)
        names = self._disk.names(directory)
        for name in names:
            if name not in (METADATA, SCHEDULE):
                self._disk.unlink(directory / name)
        path = directory / (SCHEDULE if SCHEDULE in names else METADATA)
        value = self._disk.read_file(path)
        if not value.endswith(b"\n"):
            raise StoreDamaged(f"{path}: it is cut off")
        self._place(dest, value)
        return value

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        """Files that do not depend on one another are synced at once."""
        return asyncio.ensure_future(self._write(write))

    async def _write(self, write: Write) -> Sequence[int]:
        run = self._threads.run
        ended = [_touched(change) for change in write.changes if change.due is None]
        if ended:
            # First: it gives space back.
            ended = await run(self._remove_refused, ended)
        if write.marks:
            await run(self._disk.replace_file, self._root / _MARKS, [values.pack_marks(write.marks)])
        new = [change for change in write.changes if change.is_new and change.due is not None]
        if new:
            await self._threads.each(self._prepare, new)
            await run(self._disk.sync_dir, self._data)
            await self._threads.each(self._accept, new)
        kept = [change for change in write.changes if not change.is_new and change.due is not None]
        await self._change([_touched(change) for change in kept])
        await self._change(ended)
        return ()

    def _remove_refused(self, ended: Sequence[Touched]) -> list[Touched]:
        """Remove messages that a write which failed has left without contents; returns the others."""
        there = [each for each in ended if self._disk.exists(self._mail(each.spid) / CONTENTS)]
        accepted = {each.spid for each in there}
        self._remove_ended(
            [Dest(each.spid, number) for each in ended if each.spid not in accepted for number in each.values]
        )
        return there

    async def _change(self, touched: Sequence[Touched]) -> None:
        several = [each for each in touched if len(each.values) > 1]
        await self._threads.each(self._intend, several)
        await self._threads.each(self._put, touched)
        ending = [each for each in touched if None in each.values.values()]
        if ending:
            await self._threads.run(self._end, ending)
        await self._threads.each(self._forget, several)

    # ------------------------------------------------------------ new messages

    def _prepare(self, change: Change) -> None:
        """All but what makes it accepted."""
        disk, mail = self._disk, self._mail(change.spid)
        disk.make_dir(mail)
        if disk.exists(mail / CONTENTS):
            # A write that failed comes again.
            disk.rename(mail / CONTENTS, mail / STAGED)
            disk.sync_dir(mail)
        if len(change.puts) > self._one_sync_above:
            with disk.watching(self._data) as watch:
                self._write_values(change, sync=False)
                disk.sync_filesystem(self._data, watch)
        else:
            self._write_values(change, sync=True)
        if change.content is not None:
            disk.write_temp(mail / STAGED, [change.content])
        disk.sync_dir(mail)

    def _write_values(self, change: Change, *, sync: bool) -> None:
        for number, value in change.puts.items():
            directory = self._directory(Dest(change.spid, number))
            self._disk.make_dir(directory)
            self._disk.write_temp(directory / METADATA, [value], sync=sync)
            if sync:
                self._disk.sync_dir(directory)

    def _accept(self, change: Change) -> None:
        mail = self._mail(change.spid)
        self._disk.rename(mail / STAGED, mail / CONTENTS)
        self._disk.sync_dir(mail)
        for number, value in change.puts.items():
            self._place(Dest(change.spid, number), value)

    # ------------------------------------------------------------ changes

    def _place(self, dest: Dest, value: bytes) -> None:
        """Put its link where its value says. It is not synced: a start does the same."""
        self._move(dest, self._inflight if value.startswith(BEGUN) else self._queue)

    def _move(self, dest: Dest, to: Path) -> None:
        """Move its link; harmless when it is there. A link that a power failure took is made again."""
        for other in (self._queue, self._inflight):
            if other != to:
                try:
                    self._disk.rename(other / dest.name, to / dest.name)
                    return
                except FileNotFoundError:
                    continue
        self._disk.make_symlink(Path("..") / self._data.name / uuid_of(dest.spid) / dest.name, to / dest.name)

    def _intend(self, touched: Touched) -> None:
        """Decide on a change of several values: it is made, if need be by the next start."""
        document = {number: value or _GONE for number, value in touched.values.items()}
        mail = self._mail(touched.spid)
        # A message whose directory was removed by hand must not hold up what is written with it.
        self._disk.make_dir(mail)
        self._replace(mail / CHANGE, values.pack(document))

    def _forget(self, touched: Touched) -> None:
        """A change of several values has been made."""
        mail = self._mail(touched.spid)
        if self._disk.is_dir(mail):
            self._disk.unlink(mail / CHANGE)
            self._disk.sync_dir(mail)

    def _put(self, touched: Touched) -> None:
        for number, value in touched.values.items():
            if value is None:
                continue
            dest = Dest(touched.spid, number)
            directory = self._directory(dest)
            if self._disk.exists(directory / METADATA):
                self._replace(directory / SCHEDULE, value)
            else:
                # As in `_intend`.
                self._disk.make_dir(directory.parent)
                self._disk.make_dir(directory)
                self._disk.sync_dir(directory.parent)
                self._replace(directory / METADATA, value)
            self._place(dest, value)

    def _replace(self, path: Path, octets: bytes) -> None:
        """Durable when it returns."""
        temp = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        self._disk.write_temp(temp, [octets])
        self._disk.rename(temp, path)
        self._disk.sync_dir(path.parent)

    # ------------------------------------------------------------ ends

    def _end(self, ending: Sequence[Touched]) -> None:
        dests = [
            Dest(each.spid, number)
            for each in ending
            for number, value in each.values.items()
            if value is None
        ]
        if not dests:
            return
        for dest in dests:
            self._move(dest, self._cleanup)
        self._disk.sync_dir(self._cleanup)
        self._remove_ended(dests)

    def _remove_ended(self, dests: Sequence[Dest]) -> None:
        """Remove what has a link in cleanup, and that link when nothing else can come back."""
        disk = self._disk
        for directory in (self._queue, self._inflight):
            if dests:
                for dest in dests:
                    disk.unlink(directory / dest.name)
                disk.sync_dir(directory)
        for dest in dests:
            self._remove_directory(self._directory(dest))
        for spid in dict.fromkeys(dest.spid for dest in dests):
            mail = self._mail(spid)
            if self._find(mail):
                disk.sync_dir(mail)
            else:
                self._remove_mail(mail)
        if dests:
            disk.sync_dir(self._data)
        for dest in dests:
            disk.unlink(self._cleanup / dest.name)

    def _remove_directory(self, directory: Path) -> None:
        for name in self._disk.names(directory):
            self._disk.unlink(directory / name)
        self._disk.rmdir(directory)

    def _remove_mail(self, mail: Path) -> None:
        for dest in self._find(mail):
            self._remove_directory(mail / dest.name)
        self._remove_directory(mail)

    # ------------------------------------------------------------ contents

    async def stage(self, spid: int, chunks: AsyncIterator[bytes]) -> int:
        """Written in the message's directory."""
        mail = self._mail(spid)
        await self._threads.run(self._disk.make_dir, mail)
        try:
            return await write_chunks(self._disk, self._threads, mail / STAGED, chunks)
        except BaseException:
            await self.unstage(spid)
            raise

    async def unstage(self, spid: int) -> None:
        """Remove it, and what else there is of a message that was not accepted."""
        await self._threads.run(self._unstage, self._mail(spid))

    def _unstage(self, mail: Path) -> None:
        if not self._disk.exists(mail / CONTENTS):
            self._remove_mail(mail)

    async def content(self, spid: int) -> FileContent:
        """The file, open."""
        return await self._threads.run(FileContent, self._disk, self._threads, self._mail(spid) / CONTENTS)


def _touched(change: Change) -> Touched:
    return Touched(change.spid, {**change.puts, **dict.fromkeys(change.drops)})
