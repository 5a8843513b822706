"""The helper process of a shard, and the end of it that the event loop holds.

Exporting and evacuating cost processor time that a thread would take from the commits, so a process of
its own does them. It dies with its parent: the kernel kills it, and it also sees the end of its socket.
It holds the shard's lock together with its parent, so that no new owner can begin while it still writes.

Messages are a length and a pickled value; both ends are this program, over an unnamed socket pair.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import pickle
import signal
import socket
import struct
import sys

from mqcd.core.errors import MqcdError, StoreUnavailable
from mqcd.queue import tasks
from mqcd.queue.durable import Disk

log = logging.getLogger(__name__)

_LENGTH = struct.Struct("<I")
_PR_SET_PDEATHSIG = 1


class Helper:
    """Runs tasks one after another in the helper process; starts it anew when it has died."""

    def __init__(self, lock_fd: int) -> None:
        self._lock_fd = lock_fd
        self._process: asyncio.subprocess.Process | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def run(self, task: tasks.Task) -> tasks.Result:
        """Do a task. Raises what the task raised, and StoreUnavailable when the helper has died."""
        async with self._turn:
            if self._streams is None:
                self._streams = await self._start()
            reader, writer = self._streams
            try:
                data = pickle.dumps(task)
                writer.write(_LENGTH.pack(len(data)) + data)
                await writer.drain()
                size = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
                answer = pickle.loads(await reader.readexactly(size))  # noqa: S301 (our own process)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                await self._reap()
                raise StoreUnavailable("the helper process has died; it will be started anew") from error
            except asyncio.CancelledError:
                await self._reap()
                raise
        if isinstance(answer, Exception):
            raise answer
        result: tasks.Result = answer
        return result

    async def _start(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "mqcd.queue.helper",
                str(theirs.fileno()),
                str(os.getpid()),
                pass_fds=(theirs.fileno(), self._lock_fd),
                stdin=asyncio.subprocess.DEVNULL,
            )
        ours.setblocking(False)
        return await asyncio.open_connection(sock=ours, limit=1 << 24)

    async def _reap(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            status = await self._process.wait()
            log.error("the helper process has ended with status %d", status)
            self._process = None

    async def stop(self) -> None:
        """End the process after the task that it is at."""
        async with self._turn:
            if self._streams is not None:
                self._streams[1].close()
                self._streams = None
            if self._process is not None:
                await self._process.wait()
                self._process = None


def main(arguments: list[str]) -> int:
    """The helper process: file descriptor of the socket, process id of the parent."""
    fd, parent = int(arguments[0]), int(arguments[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # A terminal's Ctrl-C reaches the whole process group; the parent decides when its helper ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.getppid() != parent:
        return 0
    # A parent that was killed leaves half a task behind, or nobody to answer: its end, not a fault.
    with contextlib.suppress(ConnectionError), socket.socket(fileno=fd) as channel:
        _serve(channel, Disk())
    return 0


def _serve(channel: socket.socket, disk: Disk) -> None:
    """Do tasks until the parent has no more. Raises ConnectionError when it is gone."""
    with channel.makefile("rwb") as stream:
        while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
            size = _LENGTH.unpack(head)[0]
            body = stream.read(size)
            if len(body) < size:
                return
            task = pickle.loads(body)  # noqa: S301 (our own parent)
            try:
                answer: object = tasks.run(disk, task)
            except (OSError, MqcdError) as error:
                answer = error
            data = pickle.dumps(answer)
            stream.write(_LENGTH.pack(len(data)) + data)
            stream.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
