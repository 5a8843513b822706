"""What a disk holds, what of that is durable, and what a power cut may leave of the rest.

Promise: no file system that keeps POSIX's word on fsync, fdatasync and syncfs can leave an image that this
model does not have among its own. Files and directories are nodes of a graph, as inodes are.

* A write dirties sectors of 512 octets. Each dirty sector, apart from all others, is found after a cut as it
  was at the last sync of its file, or after any of the writes since.
* The length of a file is one more such thing: it may be ahead of its data (zeros) or behind (cut off).
* So is each name of each directory: absent, or any of the nodes that it has had since the directory was
  synced. A rename is two names, which come and go apart. A directory's own name is its parent's business.
* A sync of a file brings content and length, a sync of a directory its names, a sync of a file system both
  of all that it holds below one root, and nothing of what lies outside.
* Sectors that were never written and synced before are an exception: a file system that aborts (ext4 does so)
  may lose them though it has said that they are durable. It takes no change from then on; so when another
  sync or a change of names has come after it, it had not aborted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

SECTOR = 512
ROOT = 0
"""Node of the root directory."""

Unit = tuple[int, int | str]
"""What is kept or lost by itself: a file's sector (node, index) or length (node, -1), or a name of a
directory (node, name)."""
LENGTH = -1
Choice = Mapping[Unit, int]
"""Which version of each undecided unit is found; 0, the durable one, when it says nothing."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that the world outside of the queue has seen."""

    word: str
    spid: int
    number: int


@dataclass(frozen=True, slots=True)
class Op:
    """One change, or a mark."""

    name: str
    node: int = ROOT
    offset: int = 0
    data: bytes = b""
    entries: tuple[tuple[int, str, int | None], ...] = ()
    """Directory, name, and the node that the name has from now on."""
    outside: frozenset[int] = frozenset()
    """Roots of other file systems below the one that is synced."""
    mark: Mark | None = None
    site: str = ""
    """Which call in the queue asked for it."""

    @property
    def syncs(self) -> bool:
        return self.name.startswith("sync")


class File:
    """A file's octets: durable, live, and in between."""

    __slots__ = ("_found", "_loose", "base", "firm", "live", "sectors", "sizes", "touched")

    def __init__(self, base: bytes = b"", firm: set[int] | None = None) -> None:
        self.firm = firm if firm is not None else set()
        """Sectors that have been written and synced."""
        self.touched: set[int] = set()
        """Those that were written since."""
        self._loose: set[int] = set()
        """Sectors whose sync may have been none."""
        self.base = base
        """Content as of the last sync."""
        self.live: bytes | bytearray = base
        self.sectors: dict[int, list[bytes]] = {}
        """Versions of dirty sectors after the durable one, oldest first."""
        self.sizes = [len(base)]
        """The durable length, and those since."""
        self._found: dict[frozenset[tuple[int | str, int]], tuple[bytes, bytes]] = {}

    def write(self, data: bytes, offset: int) -> None:
        self._found.clear()
        if not isinstance(self.live, bytearray):
            self.live = bytearray(self.live)
        end = offset + len(data)
        if end > len(self.live):
            self.live.extend(bytes(end - len(self.live)))
            self.sizes.append(end)
        self.live[offset:end] = data
        sectors = range(offset // SECTOR, (end + SECTOR - 1) // SECTOR)
        self.touched.update(sectors)
        for sector in sectors:
            self._note(sector, bytes(self.live[sector * SECTOR : (sector + 1) * SECTOR]))

    def resize(self, size: int) -> None:
        """Cut off, or lengthen by zeros."""
        self._found.clear()
        if size == len(self.live):
            return
        for sector in range(size // SECTOR, (len(self.live) + SECTOR - 1) // SECTOR):
            kept = self.live[sector * SECTOR : min(size, (sector + 1) * SECTOR)]
            self._note(sector, bytes(kept))
        self.live = bytearray(self.live[:size].ljust(size, b"\0"))
        self.sizes.append(size)

    def _note(self, sector: int, octets: bytes) -> None:
        versions = self.sectors.get(sector, ())
        octets = octets.ljust(SECTOR, b"\0")
        if octets != (versions[-1] if versions else self._durable(sector)):
            self.sectors.setdefault(sector, []).append(octets)

    def _durable(self, sector: int) -> bytes:
        return self.base[sector * SECTOR : (sector + 1) * SECTOR].ljust(SECTOR, b"\0")

    def sync(self, *, sure: bool = False) -> bool:
        """Content and length become durable; True when some sectors may not have, see `settle`."""
        self.settle()
        loose = {} if sure else {at: seen[-1:] for at, seen in self.sectors.items() if at not in self.firm}
        if self.sectors or len(self.sizes) > 1:
            self._found.clear()
            base = bytearray(self.live)
            for sector in loose:
                start, old = sector * SECTOR, self._durable(sector)
                kept = old[: max(0, len(base) - start)]
                base[start : start + len(kept)] = kept
            self.base = bytes(base)
            self.sectors = loose
            self._loose = set(loose)
            self.sizes = [len(self.base)]
        self.firm |= self.touched
        self.touched = set()
        return bool(loose)

    def settle(self) -> None:
        if not self._loose:
            return
        self._found.clear()
        base = bytearray(self.base)
        for sector in self._loose:
            first, *others = self.sectors.pop(sector)
            start = sector * SECTOR
            kept = first[: max(0, len(base) - start)]
            base[start : start + len(kept)] = kept
            if others:
                self.sectors[sector] = others
        self.base = bytes(base)
        self._loose = set()

    def filled(self) -> int:
        """Octets from the start that have been written."""
        sector = 0
        while sector in self.firm or sector in self.touched:
            sector += 1
        return min(sector * SECTOR, len(self.live))

    def damage(self, data: bytes, offset: int) -> None:
        """What the disk does to octets by itself: at once, and for ever."""
        self.sync(sure=True)
        self._found.clear()
        self.base = self.base[:offset] + data + self.base[offset + len(data) :]
        self.live = self.base

    def undecided(self) -> Iterator[tuple[int, int]]:
        """Sectors (or LENGTH) of which there are several versions, each with the number of the last one."""
        if len(self.sizes) > 1:
            yield LENGTH, len(self.sizes) - 1
        for sector, versions in self.sectors.items():
            yield sector, len(versions)

    def versions(self, index: int) -> tuple[bytes | int, ...]:
        """All versions of a sector or of the length, the durable one first."""
        if index == LENGTH:
            return tuple(self.sizes)
        return (self._durable(index), *self.sectors.get(index, ()))

    def found(self, choice: frozenset[tuple[int | str, int]]) -> tuple[bytes, bytes]:
        """The content after a cut that leaves these versions of sectors and length, and its digest."""
        known = self._found.get(choice)
        if known is None:
            chosen = dict(choice)
            size = self.sizes[chosen.pop(LENGTH, 0)]
            if chosen:
                data = bytearray(self.base[:size].ljust(size, b"\0"))
                for sector, version in chosen.items():
                    assert isinstance(sector, int)
                    start = sector * SECTOR
                    kept = self.sectors[sector][version - 1][: max(0, size - start)]
                    data[start : start + len(kept)] = kept
                content = bytes(data)
            else:
                content = self.base if size == len(self.base) else self.base[:size].ljust(size, b"\0")
            known = self._found[choice] = content, hashlib.blake2b(content, digest_size=12).digest()
        return known

    def clone(self) -> File:
        """A copy that goes its own way."""
        twin = File(self.base, set(self.firm))
        twin.touched, twin._loose = set(self.touched), set(self._loose)
        twin.live = bytearray(self.live) if isinstance(self.live, bytearray) else self.live
        twin.sectors = {sector: list(versions) for sector, versions in self.sectors.items()}
        twin.sizes = list(self.sizes)
        return twin


class Directory:
    """A directory's names, each with the nodes that it has had since the last sync."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: dict[str, list[int | None]] = {}
        """The durable node first, the live one last; None = no such name."""

    def put(self, name: str, node: int | None) -> None:
        """The name means another node, or none, from now on."""
        self.names.setdefault(name, [None]).append(node)

    def live(self) -> dict[str, int]:
        """The names as a running system sees them."""
        return {name: last for name, versions in self.names.items() if (last := versions[-1]) is not None}

    def get(self, name: str) -> int | None:
        """The node that a running system finds under a name."""
        versions = self.names.get(name)
        return versions[-1] if versions is not None else None

    def sync(self) -> None:
        """All names become durable, also those that are gone."""
        self.names = {name: [last] for name, last in self.live().items()}

    def clone(self) -> Directory:
        """A copy that goes its own way."""
        twin = Directory()
        twin.names = {name: list(versions) for name, versions in self.names.items()}
        return twin


@dataclass(slots=True)
class State:
    """A disk at one moment."""

    nodes: dict[int, File | Directory] = field(default_factory=lambda: {ROOT: Directory()})
    next_node: int = ROOT + 1
    loose: set[int] = field(default_factory=set)
    """Files whose last sync may have been none, of some sectors."""

    def file(self, node: int) -> File:
        """The node, which is a file."""
        found = self.nodes[node]
        assert isinstance(found, File)
        return found

    def directory(self, node: int) -> Directory:
        """The node, which is a directory."""
        found = self.nodes[node]
        assert isinstance(found, Directory)
        return found

    def find(self, path: PurePath) -> int | None:
        """The live node of an absolute path."""
        node: int | None = ROOT
        for part in path.parts[1:]:
            here = self.nodes[node] if node is not None else None
            if not isinstance(here, Directory):
                return None
            node = here.get(part)
        return node

    def passes_file(self, path: PurePath) -> bool:
        """Whether one of the names before the last is a file's."""
        here: File | Directory | None = self.nodes[ROOT]
        for part in path.parts[1:-1]:
            if not isinstance(here, Directory):
                break
            node = here.get(part)
            here = self.nodes[node] if node is not None else None
        return isinstance(here, File)

    def apply(self, op: Op) -> None:
        if self.loose and op.name not in ("write", "mark"):
            for loose in self.loose:
                self.file(loose).settle()
            self.loose.clear()
        _STEPS[op.name](self, op)
        for directory, name, node in op.entries:
            self.directory(directory).put(name, node)

    def sync_file(self, node: int) -> None:
        if self.file(node).sync():
            self.loose.add(node)

    def sync_below(self, node: int, outside: frozenset[int]) -> None:
        """All that lies below a directory becomes durable, but not its own name."""
        here = self.nodes[node]
        if isinstance(here, File):
            self.sync_file(node)
        else:
            here.sync()
            for child in here.live().values():
                if child not in outside:
                    self.sync_below(child, outside)

    def reachable(self) -> set[int]:
        """Nodes that some cut leaves a name for."""
        found, todo = {ROOT}, [ROOT]
        while todo:
            here = self.nodes[todo.pop()]
            if isinstance(here, Directory):
                for versions in here.names.values():
                    fresh = {node for node in versions if node is not None} - found
                    found |= fresh
                    todo += fresh
        return found

    def undecided(self) -> dict[Unit, int]:
        """All that a cut may leave in several versions, each with the number of the last one."""
        units: dict[Unit, int] = {}
        for node in sorted(self.reachable()):
            here = self.nodes[node]
            if isinstance(here, File):
                units |= {(node, index): last for index, last in here.undecided()}
            else:
                units |= {(node, name): len(v) - 1 for name, v in here.names.items() if len(set(v)) > 1}
        return units

    def versions(self, unit: Unit) -> tuple[object, ...]:
        """All versions of a unit, the durable one first."""
        node, index = unit
        here = self.nodes.get(node)
        if isinstance(here, Directory):
            assert isinstance(index, str)
            return tuple(here.names.get(index, ()))
        if here is None:
            return ()
        assert isinstance(index, int)
        return here.versions(index)

    def clone(self) -> State:
        """A copy that goes its own way: what a killed process leaves, with all that was not synced."""
        nodes = {node: here.clone() for node, here in self.nodes.items()}
        return State(nodes, self.next_node, set(self.loose))

    def image(self, choice: Choice) -> Image:
        by_node: dict[int, dict[int | str, int]] = {}
        for (node, index), version in choice.items():
            if version:
                by_node.setdefault(node, {})[index] = version
        return Image(self, by_node)


class Image:
    """What one power cut leaves of a state: only valid until the state changes."""

    def __init__(self, state: State, chosen: Mapping[int, Mapping[int | str, int]]) -> None:
        self._state = state
        self._chosen = chosen

    def key(self) -> bytes:
        """Equal for images that hold the same names and octets."""
        digest = hashlib.blake2b(digest_size=16)
        self._describe(ROOT, "", digest.update)
        return digest.digest()

    def _describe(self, node: int, path: str, tell: Callable[[bytes], None]) -> None:
        for name, child in sorted(self._names(node).items()):
            below = f"{path}/{name}"
            here = self._state.nodes[child]
            if isinstance(here, File):
                tell(below.encode() + b"\0" + self._content(child, here)[1])
            else:
                tell(below.encode() + b"\1")
                self._describe(child, below, tell)

    def _names(self, node: int) -> dict[str, int]:
        chosen = self._chosen.get(node, {})
        here = self._state.directory(node)
        found = ((name, versions[chosen.get(name, 0)]) for name, versions in here.names.items())
        return {name: child for name, child in found if child is not None}

    def _content(self, node: int, here: File) -> tuple[bytes, bytes]:
        return here.found(frozenset(self._chosen.get(node, {}).items()))

    def state(self) -> State:
        """The disk that the next start finds; all of it durable."""
        nodes: dict[int, File | Directory] = {}
        todo = [ROOT]
        while todo:
            node = todo.pop()
            if node in nodes:
                continue
            here = self._state.nodes[node]
            if isinstance(here, File):
                nodes[node] = File(self._content(node, here)[0], set(here.firm))
            else:
                twin = nodes[node] = Directory()
                for name, child in self._names(node).items():
                    twin.names[name] = [child]
                    todo.append(child)
        return State(nodes, self._state.next_node)


def _create_file(state: State, op: Op) -> None:
    state.nodes[op.node] = File()
    state.next_node = max(state.next_node, op.node + 1)


def _create_directory(state: State, op: Op) -> None:
    state.nodes[op.node] = Directory()
    state.next_node = max(state.next_node, op.node + 1)


def _sync_surely(state: State, op: Op) -> None:
    state.file(op.node).sync(sure=True)


def _nothing(state: State, op: Op) -> None:
    pass


_STEPS: dict[str, Callable[[State, Op], None]] = {
    "create": _create_file,
    "make_dir": _create_directory,
    "rename": _nothing,
    "link": _nothing,
    "unlink": _nothing,
    "rmdir": _nothing,
    "mark": _nothing,
    "write": lambda state, op: state.file(op.node).write(op.data, op.offset),
    "resize": lambda state, op: state.file(op.node).resize(op.offset),
    "damage": lambda state, op: state.file(op.node).damage(op.data, op.offset),
    "sync": lambda state, op: state.sync_file(op.node),
    "sync_appended": _sync_surely,
    "sync_dir": lambda state, op: state.directory(op.node).sync(),
    "sync_filesystem": lambda state, op: state.sync_below(op.node, op.outside),
}
