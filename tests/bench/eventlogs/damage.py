"""What happens to files on their way: each function does one thing to a directory of event files.

Each gives the names of the files that it made or changed. Which file it is, is up to the caller.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

BROKEN = (
    b"{",
    b"[]",
    b'"text"',
    b'{"v":1}',
    b"\xff\xfe\x00",
    b'{"v":1,"id":7,"event":"accepted","at":"now"}',
)
"""Lines that are no events, each in a way of its own."""


def _lines(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


def _write(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(gzip.compress(b"".join(lines), compresslevel=1, mtime=0))
    return path


def add_broken_lines(path: Path) -> int:
    """Lines that cannot be read between those that can; gives how many."""
    lines = _lines(path)
    for number, broken in enumerate(BROKEN):
        lines.insert(len(lines) * (number + 1) // (len(BROKEN) + 1), broken + b"\n")
    _write(path, lines)
    return len(BROKEN)


def overwrite_line(path: Path) -> dict[str, object]:
    """One event whose line is no longer JSON; gives the event."""
    lines = _lines(path)
    place = len(lines) // 2
    lost: dict[str, object] = json.loads(lines[place])
    lines[place] = b"\0" * (len(lines[place]) - 1) + b"\n"
    _write(path, lines)
    return lost


def cut(path: Path, share: float = 0.5) -> None:
    """The file ends early, in mid-stream."""
    data = path.read_bytes()
    path.write_bytes(data[: max(20, int(len(data) * share))])


def copy_as(path: Path, name: str | Path) -> Path:
    """The same events again, in a file of another name (beside it, unless it is a whole path)."""
    return Path(shutil.copy(path, path.parent / name))


def hold_back(path: Path, aside: Path) -> Path:
    """Take a file away, to be put back when later ones have been taken; gives where it is."""
    return Path(shutil.move(path, aside / path.name))


def add_empty(directory: Path, node: str) -> list[Path]:
    """A file of no lines, and one of no octets."""
    return [
        _write(directory / f"{node}-0-0000900001.jsonl.gz", []),
        _touch(directory / f"{node}-0-0000900002.jsonl.gz"),
    ]


def _touch(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def add_newer(directory: Path, node: str) -> Path:
    """A file of a version that nobody knows yet."""
    event = {"v": 999, "id": f"{node}/0/900000000", "event": "teleported", "at": "2030-01-01T00:00:00.000Z"}
    return _write(directory / f"{node}-0-0000900003.jsonl.gz", [json.dumps(event).encode() + b"\n"])
