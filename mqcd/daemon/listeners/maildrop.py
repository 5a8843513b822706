"""Takes the mail that programs have left in the maildrop (`mqcd.sendmail.maildrop`).

* Looked at every two seconds, from the start on. Each file goes through the door of local mail, as its
  owner's: by the same rules, filter and limits as over the socket, with the same code.
* What the door cannot take now stays, and is tried again after ten seconds.
* What is no letter, or is refused, is moved to `maildrop.bad` beside it, with a line in the log: it is not
  read again, and not lost. Only regular files with one name are read: a link could be anybody's file.
* A file is removed once its message is durable, and not taken twice: before the commit it is renamed,
  durably, to carry the message's SPID. A start looks for such files before it delivers, and a look that
  comes after a failure: if the queue has the SPID, the file is removed, else it is taken again. While the
  queue cannot say, the file stays as it is. So a message is sent twice only where it was accepted,
  delivered to all its recipients, and the server killed, before the file's removal was durable; ADR 30.

Failures: ConfigError from `make`; a directory that cannot be read is logged, and looked at again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from mqcd.core.errors import ConfigError, DecodeError, StoreUnavailable
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.queueing.spid import format_spid, parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk, describe
from mqcd.net.credentials import user_name
from mqcd.sendmail.exchange import Busy, Refused, Taken, submit
from mqcd.sendmail.letter import Letter
from mqcd.sendmail.maildrop import MAX_ENVELOPE, MODE, SUFFIX, TEMP, decode
from mqcd.submit.esmtp.caller import Caller

log = logging.getLogger("mqcd.daemon")

LOOK_MS = 2_000
LATER_MS = 10_000
_TRIES = 6
"""How often a start asks the queue for files that were being taken, before it delivers without an answer."""
_OLD_MS = 86_400_000
"""Age at which what a killed program has begun to write is removed."""
_MARKED = re.compile(rf"(.+{re.escape(SUFFIX)})\.([0-9A-F]{{16}})")

Admit = Callable[[socket.socket, Caller], None]
"""Serves SMTP on a connected socket."""


class Unfit(Exception):
    """A file that holds no letter. Fault: its writer."""


class Files:
    """The directory, and the files in it. Blocks. Raises OSError."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.path = directory
        self.bad = directory.with_name(f"{directory.name}.bad")
        self._disk = disk

    def make(self) -> None:
        """Make the directory with its mode. Raises ConfigError for what another user has put there."""
        self._disk.make_dir(self.path)
        found = self.path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigError(
                f"{self.path}: must be a directory of the server's user, who removes others' files from it; "
                "move away what is there"
            )
        if stat.S_IMODE(found.st_mode) != MODE:
            # A unit with RestrictSUIDSGID may not, and systemd-tmpfiles has done it then.
            self.path.chmod(MODE)
        for name in self._disk.names(self.path):
            if name.startswith(TEMP) and self._age(name) > _OLD_MS:
                self._disk.unlink(self.path / name)

    def _age(self, name: str) -> int:
        measure = self._disk.measure(self.path / name)
        now = int(self.path.stat().st_mtime * 1000)
        return 0 if measure is None else now - measure.modified

    def waiting(self) -> Sequence[str]:
        """Names of the files to take, in the order of their time."""
        return [name for name in self._disk.names(self.path) if name.endswith(SUFFIX)]

    def marked(self) -> Sequence[tuple[str, int]]:
        """Names with a SPID, and that SPID."""
        found = [(name, _MARKED.fullmatch(name)) for name in self._disk.names(self.path)]
        return [(name, parse_spid(match[2])) for name, match in found if match is not None]

    def read(self, name: str, most: int) -> tuple[Letter, int]:
        """The letter, of at most `most` octets (0 = any), and its sender's user id. Raises Unfit."""
        try:
            fd = self._disk.open(self.path / name, os.O_RDONLY)
        except OSError as error:
            raise Unfit(describe(error)) from error
        try:
            found = os.fstat(fd)
            if found.st_nlink != 1:
                raise Unfit("it has another name elsewhere")
            if most and found.st_size > most + MAX_ENVELOPE:
                raise Unfit(f"{found.st_size} octets are more than maxmsgsize allows")
            return decode(self._disk.pread(fd, found.st_size, 0)), found.st_uid
        except DecodeError as error:
            raise Unfit(str(error)) from error
        finally:
            self._disk.close(fd)

    def mark(self, name: str, spid: int) -> str:
        """Give it a SPID, durably; gives its new name."""
        marked = f"{name}.{format_spid(spid)}"
        self._rename(name, self.path / marked)
        return marked

    def unmark(self, marked: str) -> None:
        """Take its SPID away."""
        plain = marked.rpartition(".")[0]
        if self._disk.exists(self.path / plain):
            # Its writer has made both: neither replaces the other.
            self.put_aside(marked)
        else:
            self._rename(marked, self.path / plain)

    def put_aside(self, name: str) -> None:
        """Move it to the other directory."""
        self._disk.make_dir(self.bad)
        self._rename(name, self.bad / name)
        self._disk.sync_dir(self.bad)

    def remove(self, name: str) -> None:
        """Remove it, durably."""
        self._disk.unlink(self.path / name)
        self._disk.sync_dir(self.path)

    def _rename(self, name: str, target: Path) -> None:
        self._disk.rename(self.path / name, target)
        self._disk.sync_dir(self.path)


class Maildrop:
    """`make`, then `recover` before anything is delivered, then `run` until `stop`."""

    def __init__(
        self,
        directory: Path,
        admit: Admit,
        store: QueueStore,
        clock: Clock,
        *,
        most: Callable[[], int],
        disk: Disk | None = None,
    ) -> None:
        """`most`: octets of a message, 0 = any."""
        self.files = Files(directory, disk or Disk())
        self._admit = admit
        self._store = store
        self._clock = clock
        self._most = most
        self._stop = asyncio.Event()
        self._undecided = False
        """Whether there may be files that carry a SPID."""
        self._stuck: set[str] = set()
        """Names that could not be moved away, and are passed over."""

    async def recover(self) -> None:
        """Decide on the files that were being taken when the last run ended."""
        for _ in range(_TRIES):
            await self._decide_all()
            if not self._undecided:
                return
            await self._clock.sleep(LATER_MS)

    async def _decide_all(self) -> None:
        """Decide on each file that carries a SPID, as far as the queue can be asked."""
        self._undecided = True
        try:
            for name, spid in await asyncio.to_thread(self.files.marked):
                if name not in self._stuck:
                    await self._decide(name, spid)
        except OSError as error:
            log.warning("the maildrop: %s", describe(error))
        except StoreUnavailable as error:
            log.warning(
                "the maildrop: not known whether files were taken, the queue is asked again: %s", error
            )
        else:
            self._undecided = False

    async def _decide(self, name: str, spid: int) -> None:
        """Raises OSError, StoreUnavailable."""
        queued = [each async for each in self._store.scan(Selection(spid=spid, limit=1))]
        if queued:
            await asyncio.to_thread(self.files.remove, name)
            return
        log.warning("the maildrop: %s is taken again; it was not, or it has left the queue already", name)
        await asyncio.to_thread(self.files.unmark, name)

    async def run(self) -> None:
        """Take what comes until `stop`."""
        while not self._stop.is_set():
            if self._undecided:
                await self._decide_all()
            try:
                done = await self._take_all()
            except OSError as error:
                log.warning("the maildrop: %s", describe(error))
                done = False
            self._undecided |= not done
            await self._sleep(LATER_MS if self._undecided else LOOK_MS)

    def stop(self) -> None:
        """Let `run` return, after the file under way."""
        self._stop.set()

    async def _sleep(self, ms: int) -> None:
        waits = [asyncio.ensure_future(self._clock.sleep(ms)), asyncio.ensure_future(self._stop.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _take_all(self) -> bool:
        """Take what is there; False when the rest is to be tried later."""
        for name in await asyncio.to_thread(self.files.waiting):
            if self._stop.is_set():
                break
            if name not in self._stuck and not await self._take(name):
                return False
        return True

    async def _take(self, name: str) -> bool:
        """One file; False when the door cannot take it now."""
        try:
            letter, uid = await asyncio.to_thread(self.files.read, name, self._most())
        except Unfit as error:
            await self._put_aside(name, str(error))
            return True
        user = await asyncio.to_thread(user_name, uid)
        now = name

        async def claim(spid: int) -> None:
            nonlocal now
            now = await asyncio.to_thread(self.files.mark, name, spid)

        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self._admit(theirs, Caller(user=user, claim=claim))
        try:
            taken = await asyncio.to_thread(_submit, ours, letter, user)
        except Refused as error:
            await self._put_aside(now, f"refused to {user}: {error}")
        except Busy as error:
            log.info("the maildrop waits: %s", error)
            if now != name:
                await asyncio.to_thread(self.files.unmark, now)
            return False
        except OSError as error:
            log.warning("the maildrop: %s: %s", name, describe(error))
            return False
        else:
            await self._finish(now, taken)
        return True

    async def _finish(self, name: str, taken: Taken) -> None:
        if not taken.refused:
            await asyncio.to_thread(self.files.remove, name)
            return
        # No program waits for the reply: the letter is kept, and the log names it.
        refused = "; ".join(f"{recipient}: {answer}" for recipient, answer in taken.refused[:10])
        await self._put_aside(name, f"sent, but not to {len(taken.refused)} of its recipients: {refused}")

    async def _put_aside(self, name: str, why: str) -> None:
        try:
            await asyncio.to_thread(self.files.put_aside, name)
        except FileNotFoundError:
            # Its owner has removed it meanwhile.
            return
        except OSError as error:
            self._stuck.add(name)
            log.error("the maildrop: %s stays, and is passed over: %s; %s", name, why, describe(error))
            return
        log.error("the maildrop: %s is moved to %s: %s", name, self.files.bad, why)


def _submit(connection: socket.socket, letter: Letter, user: str) -> Taken:
    # No time limit: a commit that hangs may yet become durable, and the session ends with its outcome.
    with connection:
        return submit(connection, letter, user)
