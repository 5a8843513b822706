"""Processes that the server starts for itself: both ends of one, and what ties it to its parent.

Work that would take processor time from the event loop and its commits is done by them. A child dies with its
parent: the kernel kills it, and it also sees the end of its socket. A terminal's signals do not reach
it, from its first moment on, for its parent decides when it ends.

Messages are a length and a pickled value; both ends are this program, over an unnamed socket pair.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedRWPair
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mqcd

if TYPE_CHECKING:
    import asyncio

_LENGTH = struct.Struct("<I")
_PR_SET_PDEATHSIG = 1


def _packed(value: object) -> bytes:
    data = pickle.dumps(value)
    return _LENGTH.pack(len(data)) + data


@dataclass(slots=True, eq=False)
class Child:
    """The parent's end. Its methods raise IncompleteReadError and ConnectionError when the child is gone."""

    process: asyncio.subprocess.Process
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process.returncode is None else None

    async def send(self, value: object) -> None:
        self._writer.write(_packed(value))
        await self._writer.drain()

    async def receive(self) -> Any:
        size = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))[0]
        return pickle.loads(await self._reader.readexactly(size))  # noqa: S301 (our own process)

    async def leave(self) -> int:
        """Let it finish what it is at; its exit status."""
        self._writer.close()
        return await self.process.wait()

    async def kill(self) -> int:
        """End it at once; its exit status."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        return await self.leave()


def environment() -> dict[str, str]:
    """Of a Python that this one starts: it imports mqcd from where this one did, and nothing from the working
    directory, which may belong to anybody (`-m` puts it first in sys.path).

    PYTHONSAFEPATH is inherited by what the child itself starts.
    """
    variables = {**os.environ, "PYTHONSAFEPATH": "1"}
    root = str(Path(mqcd.__file__).parents[1])
    # What comes first there is this program's own directory, or the working directory: no child has it.
    if root not in sys.path[1:]:
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return variables


async def start(module: str, *inherited: int, buffer: int) -> Child:
    """Run a module as a child that has these descriptors too.

    About `buffer` octets of what it sends are held before it has to wait.
    """
    # Here, because the children import this module too, and most of their start would be asyncio's.
    import asyncio

    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                str(theirs.fileno()),
                str(os.getpid()),
                pass_fds=(theirs.fileno(), *inherited),
                stdin=asyncio.subprocess.DEVNULL,
                env=environment(),
                start_new_session=True,
            )
        ours.setblocking(False)
        return Child(process, *await asyncio.open_connection(sock=ours, limit=buffer))
    except BaseException:
        # A child that runs already ends when it reads the end of its socket.
        ours.close()
        raise


class Channel:
    """The child's end. Its methods raise ConnectionError when the parent is gone."""

    def __init__(self, stream: BufferedRWPair, fd: int = -1) -> None:
        self._stream = stream
        self.fd = fd
        """Readable when the parent has said something, or is gone."""

    def receive(self) -> Any:
        """The next message; None when the parent has no more."""
        head = self._stream.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        size = _LENGTH.unpack(head)[0]
        body = self._stream.read(size)
        return pickle.loads(body) if len(body) == size else None  # noqa: S301 (our own parent)

    def send(self, value: object) -> None:
        """Send a message; waits while the parent has enough."""
        self._stream.write(_packed(value))
        self._stream.flush()


def serve(arguments: list[str], work: Callable[[Channel], None]) -> int:
    """The child's life: what `start` gave it as arguments, and what it does. Returns its exit code."""
    fd, parent = int(arguments[0]), int(arguments[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # What a service manager sends goes to all processes of the service, each in whichever session.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.getppid() != parent:
        return 0
    # A parent that was killed leaves half a task behind, or nobody to answer: its end, not a fault.
    with (
        contextlib.suppress(ConnectionError),
        socket.socket(fileno=fd) as channel,
        channel.makefile("rwb") as stream,
    ):
        work(Channel(stream, fd))
    return 0
