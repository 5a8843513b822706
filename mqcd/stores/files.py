"""Messages as pairs of files: `<uuid>.env` is the content, `<uuid>.meta` its recipients and their state.

A file is written in the scratch directory, synced, and renamed; the directory is synced after that. A content
is in place before its meta file is, and outlives it: so a `.meta` has its `.env`, and an `.env` alone is left
over. The UUID (version 8, RFC 9562) holds the SPID.

Promises: synced. A write of several messages may be kept in part. One process has the directories at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from mqcd.core.errors import ConfigError, StoreDamaged
from mqcd.disk.durable import Disk
from mqcd.stores import values
from mqcd.stores.backend import Change, Marks, Promises, Stored, Write
from mqcd.stores.file_contents import FileContent, FileStore, write_chunks

ENV, META = ".env", ".meta"
_MARKS = "queue.marks"


def uuid_of(spid: int) -> str:
    """The hexadecimal UUID of a message: 8 and 8 are its version and its variant."""
    digits = f"{spid:016x}"
    return f"{digits[:12]}8{digits[12:15]}8{digits[15]}{'0' * 14}"


def spid_in(name: str) -> int | None:
    """The SPID in the name of a message's file; None for any other name."""
    stem = name.partition(".")[0]
    digits = f"{stem[:12]}{stem[13:16]}{stem[17:18]}"
    try:
        spid = int(digits, 16)
    except ValueError:
        return None
    return spid if len(digits) == 16 and uuid_of(spid) == stem else None


class FilesStore(FileStore):
    """`backend.Backend` in directories.

    `env_dir`, `meta_dir`: of contents and of recipients, may be the same. `tmp_dir`: the scratch directory,
    on the same file system; None = `scratch` in `env_dir`. They are made if they are missing.
    """

    promises = Promises(synced=True, atomic=False, shared=False)

    def __init__(
        self,
        env_dir: Path,
        meta_dir: Path | None = None,
        tmp_dir: Path | None = None,
        *,
        disk: Disk | None = None,
    ) -> None:
        self._env = Path(env_dir)
        self._meta = Path(meta_dir or env_dir)
        self._tmp = Path(tmp_dir or self._env / "scratch")
        super().__init__(disk)

    # ------------------------------------------------------------ open and close

    def _open(self) -> Marks:
        disk = self._disk
        if self._tmp in (self._env, self._meta):
            raise ConfigError(f"tmp_dir is {self._tmp}, where messages are; a start empties it")
        for directory in (self._env, self._meta, self._tmp):
            disk.mkdir(directory)
        for directory in dict.fromkeys((self._env, self._meta)):
            self._lock(directory)
        self._check_rename()
        self._left = self._spids(self._meta, META)
        left_over = set(self._spids(self._env, ENV)).difference(self._left)
        path = self._meta / _MARKS
        marks = values.unpack_marks(disk.read_file(path)) if disk.exists(path) else {}
        # Marks are written before any content: these messages have their meta files in another directory.
        if left_over and not self._left and not marks:
            raise StoreDamaged(
                f"{self._env} has contents of {len(left_over)} messages, and {self._meta} nothing of them: "
                f"set meta_dir to the directory of their {META} files, or move the contents away"
            )
        for name in disk.names(self._tmp):
            disk.unlink(self._tmp / name)
        for spid in left_over:
            disk.unlink(self._env / f"{uuid_of(spid)}{ENV}")
        return marks

    def _spids(self, directory: Path, kind: str) -> list[int]:
        """Of the messages that have a file of this kind there."""
        found = [spid_in(name) for name in self._disk.names(directory) if name.endswith(kind)]
        return sorted(spid for spid in found if spid is not None)

    def _check_rename(self) -> None:
        """A rename from one file system to another is none."""
        probe = self._tmp / "probe"
        for directory in dict.fromkeys((self._env, self._meta)):
            self._disk.write_temp(probe, [b""], sync=False)
            try:
                self._disk.rename(probe, directory / "probe")
            except OSError as error:
                raise ConfigError(
                    f"{self._tmp} and {directory} are on different file systems; set tmp_dir to one of theirs"
                ) from error
            self._disk.unlink(directory / "probe")

    # ------------------------------------------------------------ documents

    def _read(self, spid: int) -> Stored:
        path = self._meta / f"{uuid_of(spid)}{META}"
        try:
            return Stored(spid=spid, values=values.unpack(self._disk.read_file(path)))
        except StoreDamaged as error:
            raise StoreDamaged(f"{path}: {error}") from error

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        """Files that do not depend on one another are synced at once."""
        return asyncio.ensure_future(self._write(write))

    async def _write(self, write: Write) -> Sequence[int]:
        run, disk = self._threads.run, self._disk
        if write.marks:
            await run(disk.replace_file, self._meta / _MARKS, [values.pack_marks(write.marks)])
        new = [change for change in write.changes if change.is_new]
        kept = [change for change in write.changes if change.due is not None]
        ended = [change for change in write.changes if change.due is None]
        if new:
            await self._threads.each(self._place_content, new)
            await run(disk.sync_dir, self._env)
        if kept:
            await self._threads.each(self._place_meta, kept)
            await run(disk.sync_dir, self._meta)
        if ended:
            await run(self._remove, [uuid_of(change.spid) for change in ended])
        return ()

    def _place_content(self, change: Change) -> None:
        name = f"{uuid_of(change.spid)}{ENV}"
        if change.content is not None:
            self._disk.write_temp(self._tmp / name, [change.content])
        # A write that failed may come again.
        if change.content is not None or self._disk.exists(self._tmp / name):
            self._disk.rename(self._tmp / name, self._env / name)

    def _place_meta(self, change: Change) -> None:
        name = f"{uuid_of(change.spid)}{META}"
        self._disk.write_temp(self._tmp / name, [values.pack(change.values())])
        self._disk.rename(self._tmp / name, self._meta / name)

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._disk.unlink(self._meta / f"{name}{META}")
        self._disk.sync_dir(self._meta)
        for name in names:
            for path in (self._tmp / f"{name}{META}", self._tmp / f"{name}{ENV}", self._env / f"{name}{ENV}"):
                self._disk.unlink(path)

    # ------------------------------------------------------------ contents

    async def stage(self, spid: int, chunks: AsyncIterator[bytes]) -> int:
        """Written in the scratch directory."""
        return await write_chunks(self._disk, self._threads, self._tmp / f"{uuid_of(spid)}{ENV}", chunks)

    async def unstage(self, spid: int) -> None:
        """Remove it."""
        await self._threads.run(self._disk.unlink, self._tmp / f"{uuid_of(spid)}{ENV}")

    async def content(self, spid: int) -> FileContent:
        """The file, open."""
        path = self._env / f"{uuid_of(spid)}{ENV}"
        return await self._threads.run(FileContent, self._disk, self._threads, path)
