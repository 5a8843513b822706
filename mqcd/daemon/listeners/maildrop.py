"""Takes the mail that programs have left in the maildrop (`mqcd.sendmail.maildrop`).

* Looked at every two seconds, from the start on. Each file goes through the door of local mail, as its
  owner's: by the same rules, filter and limits as over the socket, with the same code.
* A letter that cannot be read now, or that the door does not take now, waits and holds up no other: it is
  tried again after 10 s, then after pauses that double up to 10 min, behind letters that are new. A door
  that takes none (a status of `_SHUT`, a session that breaks) ends the look; the next is ten seconds later.
* What is no letter, or is refused, is moved to `maildrop.bad` beside it, with a line in the log: it is not
  read again, and not lost. Only regular files with one name are read: a link could be anybody's file.
* A file is not taken twice: before the commit it is renamed, durably, to carry the message's SPID. What has
  become of its message says the step that is left (`State`). A step that the disk refuses is logged once and
  tried again with each look; no other file waits for it.
* A start asks the queue for the files that carry a SPID before it delivers, for a minute at most. It is asked
  behind a session that broke, too, at once and with the next look. A message is sent twice only where it has
  left the queue before the answer (delivered to all its recipients while its file was not durably removed
  yet), or its group of the journal failed and counts after a kill; ADR 30.

Failures: ConfigError from `make`; a directory that cannot be read is logged, and looked at again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from mqcd.core.errors import ConfigError, DecodeError, StoreUnavailable
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.queueing.spid import format_spid, parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp import reply
from mqcd.disk.durable import Disk, describe
from mqcd.net.credentials import user_name
from mqcd.net.waits import in_time
from mqcd.sendmail.exchange import Busy, Refused, Taken, submit
from mqcd.sendmail.letter import Letter, at_most
from mqcd.sendmail.maildrop import MAX_ENVELOPE, MODE, SUFFIX, TEMP, decode
from mqcd.submit.esmtp.caller import Caller

log = logging.getLogger("mqcd.daemon")

LOOK_MS = 2_000
LATER_MS = 10_000
_LONGEST_MS = 600_000
"""The longest pause of a letter. One that comes to it is logged as a warning, once."""
_LOOK_MOST_MS = 60_000
"""How long a look may last before the next one begins: with the letters that have come meanwhile."""
_SHUT = ("4.3.1 ", "4.3.2 ")
"""Statuses that say nothing of the letter (RFC 3463, 3.4): the door or the queue takes no mail now."""
_PAUSES = 6
"""How often a start waits to ask the queue again for files that were being taken, before it delivers without
an answer."""
_OLD_MS = 86_400_000
"""Age at which what a killed program has begun to write is removed."""
_IRREGULAR = frozenset((errno.EACCES, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENXIO))
"""What opening a file raises for what is no regular file, or its owner has closed to the server."""
_MARKED = re.compile(rf".+{re.escape(SUFFIX)}\.[0-9A-F]{{16}}")

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

    def marked(self) -> Sequence[str]:
        """Names with a SPID."""
        return [name for name in self._disk.names(self.path) if _MARKED.fullmatch(name)]

    def read(self, name: str, most: int) -> tuple[Letter, int]:
        """The letter, of `at_most(most)` octets, and its sender's user id. Raises Unfit."""
        try:
            fd = self._disk.open(self.path / name, os.O_RDONLY)
        except OSError as error:
            if error.errno in _IRREGULAR:
                raise Unfit(describe(error)) from error
            raise
        try:
            found = os.fstat(fd)
            if found.st_nlink != 1:
                raise Unfit("it has another name elsewhere")
            if found.st_size > at_most(most) + MAX_ENVELOPE:
                raise Unfit(f"{found.st_size} octets, a message here has at most {at_most(most)}")
            return decode(self._disk.pread(fd, found.st_size, 0)), found.st_uid
        except DecodeError as error:
            raise Unfit(str(error)) from error
        finally:
            self._disk.close(fd)

    def mark(self, name: str, spid: int) -> None:
        """Give it a SPID, durably: `marked_name` from then on, perhaps also where this raises."""
        self._rename(name, self.path / marked_name(name, spid))

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


def marked_name(name: str, spid: int) -> str:
    """The name of a file that is being taken under this SPID."""
    return f"{name}.{format_spid(spid)}"


class State(Enum):
    """What is known of a file that is not to be taken now, and the step that is left."""

    UNDECIDED = "undecided"
    """Its session broke, or the server ended: the queue is asked, and says which of the next two it is."""
    ACCEPTED = "accepted"
    """The queue has had its message: it is removed, whatever becomes of the message meanwhile."""
    NOT_ACCEPTED = "not accepted"
    """The queue never had it: it gets its plain name back, to be taken again."""
    REFUSED = "refused"
    """It is no letter, or is not sent to all its recipients: it is moved to the other directory."""


_STEPS: Mapping[State, Callable[[Files, str], None]] = {
    State.ACCEPTED: Files.remove,
    State.NOT_ACCEPTED: Files.unmark,
    State.REFUSED: Files.put_aside,
}


class Wait(NamedTuple):
    """When a letter is tried again that could not be taken."""

    due: int
    """Monotonic, ms."""
    pause: int
    """The last one that was the letter's own, ms."""


_FRESH = Wait(0, LATER_MS // 2)


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
        """`most`: maxmsgsize."""
        self.files = Files(directory, disk or Disk())
        self._admit = admit
        self._store = store
        self._clock = clock
        self._most = most
        self._stop = asyncio.Event()
        self._left: dict[str, State] = {}
        """By name, the files whose step could not be done yet. None of them is taken."""
        self._waits: dict[str, Wait] = {}
        """By name, the letters that were tried; those without a file are dropped with each look."""
        self._listed = False
        """Whether those are among them that the last run left."""

    async def recover(self) -> None:
        """Decide on the files that were being taken when the last run ended."""
        await self._catch_up()
        for _ in range(_PAUSES):
            if self._listed and not self._undecided():
                return
            await self._clock.sleep(LATER_MS)
            await self._catch_up()

    def _undecided(self) -> Sequence[str]:
        return [name for name, state in self._left.items() if state is State.UNDECIDED]

    async def _catch_up(self) -> None:
        """Do the steps that are left, as far as the disk lets them and the queue answers."""
        for name, state in list(self._left.items()):
            if state is not State.UNDECIDED:
                await self._do(name, state)
        try:
            if not self._listed:
                marked = await asyncio.to_thread(self.files.marked)
                self._left = dict.fromkeys(marked, State.UNDECIDED) | self._left
                self._listed = True
            for name in self._undecided():
                await self._do(name, await self._ask(name))
        except OSError as error:
            log.warning("the maildrop: %s", describe(error))
        except StoreUnavailable as error:
            log.warning(
                "the maildrop: not known whether files were taken, the queue is asked again: %s", error
            )

    async def _ask(self, name: str) -> State:
        """What has become of the message of a file. Raises OSError, StoreUnavailable."""
        if await self._has(name):
            return State.ACCEPTED
        log.warning("the maildrop: %s is taken again; it was not, or it has left the queue already", name)
        return State.NOT_ACCEPTED

    async def _has(self, name: str) -> bool:
        """Whether the queue has the message of a file. Raises OSError, StoreUnavailable."""
        selection = Selection(spid=parse_spid(name.rpartition(".")[2]), limit=1)
        return bool([each async for each in self._store.scan(selection)])

    async def _ask_early(self, name: str) -> None:
        """Ask at once behind a break, before the message is delivered. Only yes counts: its commit may still
        be under way."""
        self._left[name] = State.UNDECIDED
        try:
            if await self._has(name):
                await self._do(name, State.ACCEPTED)
        except (OSError, StoreUnavailable) as error:
            log.warning("the maildrop: the queue is asked again for %s: %s", name, error)

    async def _do(self, name: str, state: State, why: str = "") -> None:
        """The step of a state, any but UNDECIDED; what the disk refuses is left, and logged once."""
        try:
            await asyncio.to_thread(_STEPS[state], self.files, name)
        except FileNotFoundError:
            # Its owner has removed it meanwhile, or only the step's sync had failed.
            self._left.pop(name, None)
        except OSError as error:
            if self._left.get(name) is not state:
                log.error(
                    "the maildrop: %s: %s; the next look tries again what is left: %s",
                    name,
                    why or state.value,
                    describe(error),
                )
            self._left[name] = state
        else:
            self._left.pop(name, None)
            if state is State.REFUSED:
                log.error("the maildrop: %s is moved to %s: %s", name, self.files.bad, why or state.value)

    async def run(self) -> None:
        """Take what comes until `stop`."""
        while not self._stop.is_set():
            await self._catch_up()
            try:
                done = await self._take_all()
            except OSError as error:
                log.warning("the maildrop: %s", describe(error))
                done = False
            await self._sleep(LOOK_MS if done and not self._undecided() else LATER_MS)

    def stop(self) -> None:
        """Let `run` return, after the file under way."""
        self._stop.set()

    async def _sleep(self, ms: int) -> None:
        with suppress(TimeoutError):
            await in_time(self._clock, ms, self._stop.wait())

    async def _take_all(self) -> bool:
        """Take what is there and due; False when the door is shut."""
        begun = self._clock.monotonic()
        names = await asyncio.to_thread(self.files.waiting)
        self._waits = {name: self._waits[name] for name in names if name in self._waits}
        for name in sorted(names, key=self._due):
            late = self._clock.monotonic() - begun > _LOOK_MOST_MS
            if late or self._due(name) > begun or self._stop.is_set():
                break
            if name not in self._left and not await self._take(name):
                return False
        return True

    def _due(self, name: str) -> int:
        return self._waits.get(name, _FRESH).due

    def _wait(self, name: str, why: object, *, shut: bool) -> None:
        """Try this letter later; where the door is shut, its own pause does not grow."""
        last = self._waits.get(name, _FRESH).pause
        pause = last if shut else min(2 * last, _LONGEST_MS)
        self._waits[name] = Wait(self._clock.monotonic() + (LATER_MS if shut else pause), pause)
        level = logging.WARNING if last < pause == _LONGEST_MS else logging.INFO
        log.log(level, "the maildrop: %s waits: %s", name, why)

    async def _mark(self, name: str, spid: int) -> None:
        """Raises `reply.Refused`: the cause comes back with the door's answer, and is logged then."""
        try:
            await asyncio.to_thread(self.files.mark, name, spid)
        except OSError as error:
            text = f"its file cannot be renamed: {error.strerror}"
            raise reply.Refused(reply.Reply(code=451, status="4.3.0", text=text)) from error

    async def _take(self, name: str) -> bool:
        """One file; False when the door is shut."""
        try:
            letter, uid = await asyncio.to_thread(self.files.read, name, self._most())
        except Unfit as error:
            await self._do(name, State.REFUSED, str(error))
            return True
        except OSError as error:
            # Where its owner has removed it, the next look forgets it.
            self._wait(name, describe(error), shut=False)
            return True
        user = await asyncio.to_thread(user_name, uid)
        now = name

        async def claim(spid: int) -> None:
            nonlocal now
            now = marked_name(name, spid)
            await self._mark(name, spid)

        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self._admit(theirs, Caller(user=user, claim=claim))
        try:
            taken = await asyncio.to_thread(_submit, ours, letter, user)
        except Refused as error:
            await self._do(now, State.REFUSED, f"refused to {user}: {error}")
        except Busy as error:
            shut = error.answer.text.startswith(_SHUT)
            self._wait(name, error, shut=shut)
            if now != name:
                await self._do(now, State.NOT_ACCEPTED)
            return not shut
        except OSError as error:
            log.warning("the maildrop: %s: %s", name, describe(error))
            self._wait(name, describe(error), shut=True)
            if now != name:
                await self._ask_early(now)
            return False
        else:
            await self._do(now, *_after(taken))
        return True


def _after(taken: Taken) -> tuple[State, str]:
    """The state of a file whose message was accepted, and why."""
    if not taken.refused:
        return State.ACCEPTED, ""
    # No program waits for the reply: the letter is kept, and the log names it.
    refused = "; ".join(f"{recipient}: {answer}" for recipient, answer in taken.refused[:10])
    return State.REFUSED, f"sent, but not to {len(taken.refused)} of its recipients: {refused}"


def _submit(connection: socket.socket, letter: Letter, user: str) -> Taken:
    # No time limit: a commit that hangs may yet become durable, and the session ends with its outcome. The
    # letter is here up to its last CRLF: the door does not wait for any of it.
    with connection:
        return submit(connection, letter, user)
