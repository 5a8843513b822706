"""The maildrop's files through a real door into the memory store, and what each crash leaves."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest

from mqcd.config.settings import LocalSettings, SenderRightSettings
from mqcd.core.errors import ConfigError, StoreUnavailable
from mqcd.core.model import Recipient, Submission
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.reply import Refused, Reply
from mqcd.daemon.listeners.maildrop import LATER_MS, LOOK_MS, Maildrop, marked_name
from mqcd.disk.durable import Disk
from mqcd.net.credentials import user_name
from mqcd.sendmail.exchange import Answer, Busy, Taken
from mqcd.sendmail.letter import Letter
from mqcd.sendmail.maildrop import drop
from mqcd.submit import Door
from mqcd.submit.policy.local import listener_of
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore

ME = user_name(os.geteuid())
CLOSED = Reply(code=451, status="4.3.2", text="not yet")


class Store(MemoryStore):
    """One that can fail, or be cut off behind its commit."""

    failure: Exception | None = None
    cut = False
    committed = 0
    unreadable = 0
    """How many scans fail."""
    delivered = False
    """Whether what was committed has left it."""

    async def scan(self, selection: Selection) -> AsyncGenerator[Recipient, None]:
        if self.delivered:
            return
        if self.unreadable:
            self.unreadable -= 1
            raise StoreUnavailable("it is tidied")
        async for each in super().scan(selection):
            yield each

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        if self.failure is not None:
            raise self.failure
        made = await super().enqueue(submission)
        self.committed += 1
        if self.cut:
            raise asyncio.CancelledError
        return made


class Pauses(FakeClock):
    """The maildrop's clock: says when it waits, and wakes it."""

    def __init__(self) -> None:
        super().__init__()
        self._waits = asyncio.Event()

    async def sleep(self, ms: int) -> None:
        self._waits.set()
        await super().sleep(ms)

    async def begun(self) -> None:
        """Return once a look has ended."""
        await self._waits.wait()
        self._waits.clear()


class Post:
    """A maildrop with its door, and a letter for it."""

    def __init__(self, directory: Path, disk: Disk | None = None, **local: object) -> None:
        self.clock = FakeClock()
        self.pauses = Pauses()
        self.store = Store(self.clock, RecordingObserver())
        settings = LocalSettings(rootpath=directory, **local)  # type: ignore[arg-type]
        self.door = Door(
            listener_of(settings, "mx.example.org"),
            self.store,
            self.clock,
            RecordingObserver(),
            inline_max=65536,
            local=True,
        )
        self.path = directory / "maildrop"
        self.maildrop = Maildrop(
            self.path,
            lambda connection, caller: self.door.admit(connection, "", caller),
            self.store,
            self.pauses,
            most=lambda: settings.maxmsgsize,
            disk=disk,
        )
        self.maildrop.files.make()

    def leave(self, *recipients: str, sender: str = ME, content: bytes = b"Subject: s\r\n\r\nx\r\n") -> Path:
        letter = Letter(sender=sender, author="", recipients=recipients or ("b@x.org",), content=content)
        return drop(self.path, letter, self.clock.now())

    async def queued(self) -> list[Recipient]:
        return [each async for each in self.store.scan(Selection())]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())

    def bad(self) -> list[str]:
        return sorted(path.name for path in self.maildrop.files.bad.glob("*"))


@asynccontextmanager
async def open_post(post: Post) -> AsyncIterator[Post]:
    """The door open, without a port."""
    await post.store.open()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(post.path.parent / "submit.sock"))
    listening.setblocking(False)
    post.door.adopt([listening])
    await post.door.start()
    try:
        yield post
    finally:
        await post.door.stop()


async def once(post: Post) -> None:
    """One look, and the wait after it."""
    running = asyncio.ensure_future(post.maildrop.run())
    await post.pauses.begun()
    post.maildrop.stop()
    await running


async def test_a_file_is_taken_as_its_owners(tmp_path: Path) -> None:
    async with open_post(Post(tmp_path)) as post:
        post.leave("b@x.org", "root")
        await once(post)
        found = sorted(await post.queued(), key=lambda each: each.key)
        assert [each.address for each in found] == ["b@x.org", "root@mx.example.org"]
        envelope = found[0].envelope
        assert (envelope.sender, envelope.user, envelope.listener, envelope.client) == (
            f"{ME}@mx.example.org",
            ME,
            "sendmail",
            "",
        )
        handle = await post.store.content(found[0])
        content = (await handle.read(handle.size)).decode()
        assert content.startswith(f"Received: by mx.example.org (mqcd, from user {ME})\r\n\tid ")
        for field in ("Date: ", "Message-ID: ", f"From: <{ME}@mx.example.org>", "Subject: s"):
            assert f"\r\n{field}" in content
        assert (post.names(), post.bad()) == ([], [])


def test_the_directory_is_for_all_to_add_and_none_to_list(tmp_path: Path) -> None:
    post = Post(tmp_path)
    assert stat.S_IMODE(post.path.stat().st_mode) == 0o3733
    post.maildrop.files.make()


def test_what_another_made_is_no_maildrop(tmp_path: Path) -> None:
    (tmp_path / "maildrop").symlink_to(tmp_path)
    with pytest.raises(ConfigError):
        Post(tmp_path)


def make_link(post: Post) -> None:
    other = post.path.parent / "other"
    other.write_bytes(post.leave().read_bytes())
    for path in post.path.iterdir():
        path.unlink()
    (post.path / "1.mail").symlink_to(other)


def make_hard_link(post: Post) -> None:
    (post.path.parent / "other").hardlink_to(post.leave())


def make_fifo(post: Post) -> None:
    os.mkfifo(post.path / "1.mail")


def make_torn(post: Post) -> None:
    made = post.leave()
    made.write_bytes(made.read_bytes()[:-1])


def make_large(post: Post) -> None:
    os.truncate(post.leave(), 1 << 40)


def make_without_end(post: Post) -> None:
    post.leave(content=b"abc\n")


@pytest.mark.parametrize("maxmsgsize", [50 << 20, 0])
@pytest.mark.parametrize(
    "make", [make_link, make_hard_link, make_fifo, make_torn, make_large, make_without_end]
)
async def test_what_is_no_letter_is_moved_away(
    tmp_path: Path, make: object, maxmsgsize: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_post(Post(tmp_path, maxmsgsize=maxmsgsize)) as post:
        assert callable(make)
        make(post)
        await once(post)
        assert (await post.queued(), post.names(), len(post.bad())) == ([], [], 1)
        assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(
    ("step", "code"),
    [("open", errno.EMFILE), ("open", errno.EIO), ("pread", errno.EIO), ("open", errno.ENOENT)],
)
async def test_a_letter_that_cannot_be_read_now_is_taken_later(tmp_path: Path, step: str, code: int) -> None:
    disk = FaultyDisk()
    async with open_post(Post(tmp_path, disk)) as post:
        for name in ("1.mail", "2.mail"):
            post.leave().rename(post.path / name)
        disk.fail(step, "*/1.mail", code=code)
        assert await post.maildrop._take_all()
        assert (len(await post.queued()), post.names(), post.bad()) == (1, ["1.mail"], [])
        post.pauses.advance(LATER_MS)
        await post.maildrop._take_all()
        assert (len(await post.queued()), post.names()) == (2, [])


@pytest.mark.parametrize("step", ["rename", "sync_dir"])
async def test_a_letter_that_cannot_be_marked_waits_with_its_cause(
    tmp_path: Path, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    async with open_post(Post(tmp_path, disk)) as post:
        name = post.leave().name
        disk.fail(step, "*/maildrop*", code=errno.ENOSPC)
        with caplog.at_level(logging.INFO):
            assert await post.maildrop._take_all()
        (record,) = caplog.records
        assert (record.exc_info, os.strerror(errno.ENOSPC) in record.message) == (None, True)
        assert post.names() == [name]
        post.pauses.advance(LATER_MS)
        await post.maildrop._take_all()
        assert (len(await post.queued()), post.names()) == (1, [])


async def test_what_cannot_be_moved_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_post(Post(tmp_path)) as post:
        post.maildrop.files.bad.write_bytes(b"in the way")
        (post.path / "1.mail").mkdir()
        post.leave()
        running = asyncio.ensure_future(post.maildrop.run())
        for _ in range(2):
            await post.pauses.begun()
            post.pauses.advance(LOOK_MS)
        await post.pauses.begun()
        post.maildrop.stop()
        await running
        assert (len(await post.queued()), post.names()) == (1, ["1.mail"])
        assert len([each for each in caplog.records if each.name == "mqcd.daemon"]) == 1


async def test_a_refused_letter_is_kept_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rights = (SenderRightSettings(user=("*",), addresses=("ok@x.org",)),)
    monkeypatch.setattr("mqcd.daemon.listeners.maildrop.user_name", lambda uid: "mallory")
    async with open_post(Post(tmp_path, senders=rights)) as post:
        post.leave(sender="boss@x.org")
        post.leave(sender="ok@x.org")
        await once(post)
        assert [each.envelope.sender for each in await post.queued()] == ["ok@x.org"]
        assert (post.names(), len(post.bad())) == ([], 1)


async def test_a_letter_with_a_refused_recipient_is_sent_and_kept(tmp_path: Path) -> None:
    async with open_post(Post(tmp_path)) as post:
        post.leave("b@x.org", "not an address")
        await once(post)
        assert [each.address for each in await post.queued()] == ["b@x.org"]
        assert (post.names(), len(post.bad())) == ([], 1)


@pytest.mark.parametrize("closed", [True, False])
async def test_what_the_door_cannot_take_waits(tmp_path: Path, closed: bool) -> None:
    async with open_post(Post(tmp_path)) as post:
        name = post.leave().name
        if closed:
            post.door.close_door(CLOSED)
        else:
            post.store.failure = StoreUnavailable("full")
        running = asyncio.ensure_future(post.maildrop.run())
        await post.pauses.begun()
        assert (await post.queued(), post.names()) == ([], [name])
        post.door.open_door()
        post.store.failure = None
        post.pauses.advance(LATER_MS)
        await post.pauses.begun()
        assert (len(await post.queued()), post.names()) == (1, [])
        post.maildrop.stop()
        await running


class Delays(Store):
    """Its filter, so to say, takes no mail to `later@`."""

    tries = 0
    reply = Reply(code=451, status="4.7.1", text="later")

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        if submission.recipients[0].startswith("later@"):
            self.tries += 1
            raise Refused(self.reply)
        return await super().enqueue(submission)


def delaying(directory: Path) -> tuple[Post, Delays]:
    post = Post(directory)
    post.store = post.door.intake.store = post.maildrop._store = store = Delays(
        post.clock, RecordingObserver()
    )
    return post, store


@pytest.mark.parametrize("status", ["4.7.1", "4.3.2"])
async def test_a_letter_that_is_always_delayed_delays_no_other(tmp_path: Path, status: str) -> None:
    """Also where the reply says that the door is shut."""
    post, store = delaying(tmp_path)
    store.reply = Reply(code=451, status=status, text="later")
    async with open_post(post):
        late = post.leave("later@x.org").rename(post.path / "0.mail").name
        post.leave()
        running = asyncio.ensure_future(post.maildrop.run())
        await post.pauses.begun()
        shut = status == "4.3.2"
        assert post.pauses.next_wake() == (LATER_MS if shut else LOOK_MS)
        assert (store.tries, len(await post.queued())) == (1, int(not shut))
        post.pauses.advance(LATER_MS)
        await post.pauses.begun()
        assert (store.tries, len(await post.queued()), post.names()) == (2, 1, [late])
        post.maildrop.stop()
        await running


async def test_the_pauses_of_a_letter_grow_and_it_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    post, store = delaying(tmp_path)
    async with open_post(post):
        post.leave("later@x.org")
        begun = post.pauses.monotonic()
        tried: list[int] = []
        while len(tried) < 9:
            await post.maildrop._take_all()
            if store.tries > len(tried):
                tried.append(post.pauses.monotonic() - begun)
            post.pauses.advance(LATER_MS)
        assert [after - before for before, after in pairwise(tried)] == [
            1000 * seconds for seconds in (10, 20, 40, 80, 160, 320, 600, 600)
        ]
        warned = [each for each in caplog.records if each.levelno == logging.WARNING]
        assert ["later" in each.getMessage() for each in warned if each.name == "mqcd.daemon"] == [True]


async def test_a_look_ends_in_time_for_new_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    async with open_post(Post(tmp_path)) as post:

        async def take(name: str) -> bool:
            taken.append(name)
            post.pauses.advance(2 * 60_000)
            return True

        monkeypatch.setattr(post.maildrop, "_take", take)
        post.leave()
        post.leave()
        assert await post.maildrop._take_all()
        assert len(taken) == 1


async def test_a_crash_between_commit_and_removal_takes_nothing_twice(tmp_path: Path) -> None:
    post = Post(tmp_path)
    post.store.cut = True
    async with open_post(post):
        name = post.leave().name
        post.maildrop.stop()
        # As when the process ends: the session is cut, and nothing is decided.
        post.store.unreadable = 1
        await post.maildrop._take(name)
        (queued,) = await post.queued()
        assert post.names() == [f"{name}.{format_spid(queued.spid)}"]
        post.store.cut = False
        await post.maildrop.recover()
        assert (post.store.committed, post.names()) == (1, [])


async def test_a_start_asks_a_queue_again_that_cannot_be_read(tmp_path: Path) -> None:
    post = Post(tmp_path)
    post.store.cut = True
    async with open_post(post):
        name = post.leave().name
        post.store.unreadable = 2
        await post.maildrop._take(name)
        start = asyncio.ensure_future(post.maildrop.recover())
        await post.pauses.begun()
        assert post.names() != [name]
        post.pauses.advance(LATER_MS)
        await start
        assert (post.store.committed, post.names()) == (1, [])


async def test_a_start_waits_for_a_maildrop_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_post(Post(tmp_path)) as post:
        name = post.leave().name
        post.maildrop.files.mark(name, post.store.reserve(False))
        with monkeypatch.context() as patch:
            patch.setattr(post.maildrop.files, "marked", Mock(side_effect=OSError(errno.EIO, "failed")))
            start = asyncio.ensure_future(post.maildrop.recover())
            await post.pauses.begun()
        assert not start.done()
        post.pauses.advance(LATER_MS)
        await start
        assert post.names() == [name]


async def test_a_session_that_breaks_behind_its_commit_is_not_repeated(tmp_path: Path) -> None:
    post = Post(tmp_path)
    async with open_post(post):
        post.leave()
        post.store.cut, post.store.unreadable = True, 2
        running = asyncio.ensure_future(post.maildrop.run())
        for _ in range(2):
            await post.pauses.begun()
            assert [name.endswith(".mail") for name in post.names()] == [False]
            post.store.cut = False
            post.pauses.advance(LATER_MS)
        await post.pauses.begun()
        assert (post.store.committed, post.names()) == (1, [])
        post.maildrop.stop()
        await running


async def test_what_is_delivered_soon_after_a_break_is_not_repeated(tmp_path: Path) -> None:
    post = Post(tmp_path)
    async with open_post(post):
        post.store.cut = True
        await post.maildrop._take(post.leave().name)
        post.store.cut, post.store.delivered = False, True
        await once(post)
        assert (post.store.committed, post.names()) == (1, [])


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("step", ["unlink", "sync_dir"])
async def test_what_was_accepted_is_only_removed(tmp_path: Path, step: str, breaks: bool) -> None:
    """Also where the message has left the queue before the disk lets the file go."""
    disk = FaultyDisk()
    post = Post(tmp_path, disk)
    async with open_post(post):
        post.leave()
        post.store.cut = breaks
        # The mark is synced once.
        disk.fail(step, "*/maildrop*", passes=int(step == "sync_dir"), times=3)
        running = asyncio.ensure_future(post.maildrop.run())
        for _ in range(6):
            await post.pauses.begun()
            post.store.delivered = disk.count("unlink", "*.mail.*") > 0
            post.store.cut = False
            post.pauses.advance(LATER_MS)
        await post.pauses.begun()
        assert (post.store.committed, post.names(), post.bad()) == (1, [], [])
        post.maildrop.stop()
        await running


async def test_what_the_disk_refuses_holds_up_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the start nor other files, nor the next look."""
    disk = FaultyDisk()
    async with open_post(Post(tmp_path, disk)) as post:
        for name in ("1.mail", "2.mail"):
            post.leave().rename(post.path / name)
            post.maildrop.files.mark(name, post.store.reserve(False))
        disk.fail("rename", "*/1.mail")
        await post.maildrop.recover()
        running = asyncio.ensure_future(post.maildrop.run())
        for _ in range(2):
            await post.pauses.begun()
            assert post.pauses.next_wake() == LOOK_MS
            post.pauses.advance(LOOK_MS)
        await post.pauses.begun()
        assert len(await post.queued()) == 2 - len(post.names())
        assert len([each for each in caplog.records if "1.mail" in each.message and each.levelno > 30]) < 2
        disk.mend()
        post.pauses.advance(LOOK_MS)
        await post.pauses.begun()
        assert (len(await post.queued()), post.names()) == (2, [])
        post.maildrop.stop()
        await running


async def test_a_commit_that_hangs_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outcome alone says whether the file is to be taken again."""
    limits: list[float | None] = []

    def submit(connection: socket.socket, _letter: Letter, _user: str) -> Taken:
        limits.append(connection.gettimeout())
        raise Busy(Answer(code=451, lines=("4.3.1 later",)))

    monkeypatch.setattr("mqcd.daemon.listeners.maildrop.submit", submit)
    async with open_post(Post(tmp_path)) as post:
        post.leave()
        await once(post)
    assert limits == [None]


async def test_a_crash_before_the_commit_loses_nothing(tmp_path: Path) -> None:
    async with open_post(Post(tmp_path)) as post:
        name = post.leave().name
        spid = post.store.reserve(False)
        post.maildrop.files.mark(name, spid)
        assert post.names() == [marked_name(name, spid)]
        await post.maildrop.recover()
        assert post.names() == [name]
        await once(post)
        assert (len(await post.queued()), post.names()) == (1, [])


async def test_a_marked_name_replaces_no_other(tmp_path: Path) -> None:
    async with open_post(Post(tmp_path)) as post:
        name = post.leave().name
        (post.path / f"{name}.{1:016X}").write_bytes(b"planted")
        await post.maildrop.recover()
        assert (post.names(), len(post.bad())) == ([name], 1)


def test_what_a_killed_program_began_is_removed_after_a_day(tmp_path: Path) -> None:
    post = Post(tmp_path)
    old, new = post.path / "tmp-old", post.path / "tmp-new"
    old.touch()
    os.utime(old, (1, 1))
    new.touch()
    post.maildrop.files.make()
    assert post.names() == ["tmp-new"]
