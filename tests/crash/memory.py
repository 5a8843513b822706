"""A disk in memory: `mqcd.disk.durable.Disk` over the persistence model, with a trace of all changes.

It behaves as the real disk does (tests/crash/test_model.py compares them call by call), holds no file
of the machine's, and can be cut off at any change. Locks are always free: a crash leaves nobody alive.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mqcd.disk.durable import Buffer, Disk, Measure
from tests.crash.model import Directory, File, Mark, Op, State
from tests.crash.sites import caller, site_of
from tests.fakes.clock import START_MS

_FREE = 1 << 40, 1 << 30


@dataclass(slots=True)
class _Open:
    """An open file."""

    node: int
    file: File


@dataclass(slots=True)
class Trace:
    """What happened since a state, in order."""

    start: State
    past: tuple[Mark, ...] = ()
    """What the world had seen before."""
    ops: list[Op] = field(default_factory=list)


class MemoryDisk(Disk):
    """A disk that `state` lies on; without a trace it only works."""

    def __init__(self, state: State | None = None, *, roots: Sequence[Path] = ()) -> None:
        """`roots` are the places of file systems, for `sync_filesystem`; there is one at / always."""
        self.state = state if state is not None else State()
        self.trace: Trace | None = None
        self._roots = [Path("/"), *roots]
        self._lock = threading.RLock()
        self._open: dict[int, _Open] = {}
        self._next_fd = 1000
        self.on_change: Callable[[Op], None] | None = None
        """Called before a change is made; what it raises keeps the change from happening."""

    def mark(self, word: str, spid: int, number: int) -> None:
        """The outside world has seen something."""
        with self._lock:
            self._change(Op("mark", mark=Mark(word, spid, number)))

    def damage(self, path: Path, offset: int, data: bytes) -> None:
        """The disk loses octets by itself."""
        self._change(Op("damage", self._node(path), offset, data))

    def _change(self, op: Op) -> None:
        if self.trace is not None:
            site = site_of(sys._getframe(1), __file__) if op.syncs else caller(__file__)
            op = replace(op, site=site)
            if self.on_change is not None:
                self.on_change(op)
            self.trace.ops.append(op)
        self.state.apply(op)

    # ------------------------------------------------------------ names

    def _node(self, path: Path) -> int:
        node = self.state.find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _parent(self, path: Path) -> int:
        node = self._node(path.parent)
        if not isinstance(self.state.nodes[node], Directory):
            raise _error(errno.ENOTDIR, path)
        return node

    def _walkable(self, path: Path) -> None:
        """A file on the way to a name is another error than nothing there."""
        if self.state.passes_file(path):
            raise _error(errno.ENOTDIR, path)

    def open(self, path: Path, flags: int) -> int:
        with self._lock:
            node = self.state.find(path)
            if node is None:
                if not flags & os.O_CREAT:
                    raise _error(errno.ENOENT, path)
                parent, node = self._parent(path), self.state.next_node
                self._change(Op("create", node, entries=((parent, path.name, node),)))
            elif flags & os.O_EXCL:
                raise _error(errno.EEXIST, path)
            file = self.state.nodes[node]
            if isinstance(file, Directory):
                raise _error(errno.EISDIR, path)
            if flags & os.O_TRUNC and file.live:
                self._change(Op("resize", node, 0))
            self._next_fd += 1
            self._open[self._next_fd] = _Open(node, file)
            return self._next_fd

    def close(self, fd: int) -> None:
        with self._lock:
            del self._open[fd]

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            node = self._node(source)
            if self.is_dir(target):
                raise _error(errno.EISDIR, target)
            if self.state.find(target) == node:
                # Names of the same file: POSIX says that both stay.
                return
            entries = (self._parent(target), target.name, node), (self._parent(source), source.name, None)
            self._change(Op("rename", entries=entries))

    def link(self, source: Path, target: Path) -> bool:
        with self._lock:
            node, parent = self._node(source), self._parent(target)
            if self.state.find(target) is not None:
                return False
            self._change(Op("link", entries=((parent, target.name, node),)))
            return True

    def make_symlink(self, target: Path, path: Path) -> None:
        """A name like any other: nothing follows it."""
        with self._lock:
            if self.state.find(path) is None:
                parent, node = self._parent(path), self.state.next_node
                self._change(Op("create", node, entries=((parent, path.name, node),)))

    def unlink(self, path: Path) -> None:
        with self._lock:
            self._walkable(path)
            node = self.state.find(path)
            if isinstance(self.state.nodes.get(-1 if node is None else node), Directory):
                raise _error(errno.EISDIR, path)
            if node is not None:
                self._change(Op("unlink", entries=((self._parent(path), path.name, None),)))

    def rmdir(self, path: Path) -> bool:
        with self._lock:
            self._walkable(path)
            node = self.state.find(path)
            if node is None or self.state.directory(node).live():
                return False
            self._change(Op("rmdir", entries=((self._parent(path), path.name, None),)))
            return True

    def make_dir(self, path: Path) -> None:
        with self._lock:
            if not self.is_dir(path):
                if self.exists(path):
                    raise _error(errno.EEXIST, path)
                node = self.state.next_node
                self._change(Op("make_dir", node, entries=((self._parent(path), path.name, node),)))

    def is_dir(self, path: Path) -> bool:
        with self._lock:
            node = self.state.find(path)
            return node is not None and isinstance(self.state.nodes[node], Directory)

    def exists(self, path: Path) -> bool:
        with self._lock:
            return self.state.find(path) is not None

    def names(self, path: Path) -> list[str]:
        with self._lock:
            node = self.state.find(path)
            here = self.state.nodes[node] if node is not None else None
            return sorted(here.live()) if isinstance(here, Directory) else []

    def measure(self, path: Path) -> Measure | None:
        with self._lock:
            self._walkable(path)
            node = self.state.find(path)
            file = self.state.nodes[node] if node is not None else None
            return Measure(START_MS, len(file.live)) if isinstance(file, File) else None

    # ------------------------------------------------------------ octets

    def pread_cached(self, fd: int, octets: int, offset: int) -> None:
        """Nothing is in memory: whoever reads comes to `pread`."""

    def pread(self, fd: int, octets: int, offset: int) -> bytes:
        with self._lock:
            return bytes(self._open[fd].file.live[offset : offset + octets])

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        with self._lock:
            data = b"".join(buffers)
            if data:
                self._change(Op("write", self._open[fd].node, offset, data))
            return len(data)

    def reserve(self, fd: int, octets: int) -> None:
        with self._lock:
            here = self._open[fd]
            if len(here.file.live) < octets:
                self._change(Op("resize", here.node, octets))

    def size(self, fd: int) -> int:
        with self._lock:
            return len(self._open[fd].file.live)

    def free(self, path: Path) -> tuple[int, int]:
        return _FREE

    def lock(self, fd: int, *, exclusive: bool) -> bool:
        return True

    def unlock(self, fd: int) -> None:
        pass

    # ------------------------------------------------------------ syncs

    def datasync(self, fd: int) -> None:
        with self._lock:
            self._change(Op("sync", self._open[fd].node))

    def sync_appended(self, fd: int) -> None:
        with self._lock:
            self._change(Op("sync_appended", self._open[fd].node))

    def filled(self, fd: int) -> int:
        with self._lock:
            return self._open[fd].file.filled()

    def sync_dir(self, path: Path) -> None:
        with self._lock:
            self._change(Op("sync_dir", self._node(path)))

    @contextlib.contextmanager
    def watching(self, path: Path) -> Iterator[int]:
        """No write fails here, so there is nothing to be told."""
        with self._lock:
            self._node(path)
        yield -1

    def sync_filesystem(self, path: Path, watch: int | None = None) -> None:
        with self._lock:
            around = [root for root in self._roots if path.is_relative_to(root)]
            node = self._node(max(around, key=lambda root: len(root.parts)))
            others = {self.state.find(root) for root in self._roots} - {None, node}
            outside = frozenset(each for each in others if each is not None)
            self._change(Op("sync_filesystem", node, outside=outside))


def _error(code: int, path: Path) -> OSError:
    return OSError(code, os.strerror(code), str(path))
