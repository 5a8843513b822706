"""The MANIFEST: clusters, key files and where the journal begins, as a checksummed log of edits.

Promise: what it says changes by whole edits: one line, one sync, and that sync is the commit. A torn last
line is an edit that never happened. Any other damage raises StoreDamaged: a queue is never started empty
because its list was unreadable.

The list alone does not say which clusters are part of the queue: REPLACE frames behind `replaced` have made
others, which only the next edit of an evacuation lists (`wal.fold.Fold.clusters` gives both). No cluster is
garbage for being unlisted alone.

The first line carries the format version and the whole state (a compacted log is just that line), the
following ones are edits. `manifest.lines` distinguishes torn lines from damaged ones.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from mqcd import __version__
from mqcd.core.errors import DecodeError, StoreDamaged
from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.disk.durable import Disk, let_go
from mqcd.queue.format.versions import newest, unknown
from mqcd.queue.manifest.lines import pack_line, split_lines, text_of
from mqcd.queue.manifest.state import MOST_SILOS, ClusterState, Edit, KeyFile, ManifestState

log = logging.getLogger(__name__)

FORMAT = 3
COMPACT_AT = 1 << 20
"""Octets of edits after which the log is written anew."""

_NAMES = {kind: tuple(each.name for each in fields(kind)) for kind in (ClusterState, KeyFile, Edit)}


def pack_clusters(states: Iterable[ClusterState]) -> bytes:
    """Clusters as a REPLACE frame names them."""
    return json.dumps([_cluster(state) for state in states], separators=(",", ":")).encode()


def read_clusters(text: bytes) -> tuple[ClusterState, ...]:
    """What `pack_clusters` was given. Raises DecodeError."""
    try:
        return _edit({"add": json.loads(text)}).add
    except (ValueError, TypeError, AttributeError) as error:
        raise DecodeError(f"no clusters: {error}") from error


def _cluster(state: ClusterState) -> dict[str, Any]:
    return {key: value for key, value in _fields(state) if value != ""}


def _fields(item: ClusterState | KeyFile | Edit) -> list[tuple[str, Any]]:
    """Names and values, as they are: `asdict` copies each value, which takes ten times as long."""
    return [(name, getattr(item, name)) for name in _NAMES[type(item)]]


def encode(edit: Edit, *, first: bool = False) -> bytes:
    """One line of the log."""
    body = {key: value for key, value in _fields(edit) if value not in (None, ())}
    if edit.add:
        body["add"] = [_cluster(state) for state in edit.add]
    if edit.keys:
        body["keys"] = [dict(_fields(each)) for each in edit.keys]
    if first:
        body = {"format": FORMAT, **body}
    return pack_line(json.dumps(body, separators=(",", ":")).encode())


_EDIT_FIELDS = frozenset(_NAMES[Edit])


def decode(line: bytes) -> tuple[Edit, int | None]:
    """The edit of a line without its line feed, and the format version if it is a first line.

    Raises DecodeError.
    """
    text = text_of(line)
    if text is None:
        raise DecodeError("the line fails its checksum")
    try:
        body: dict[str, Any] = json.loads(text)
        version = body.pop("format", None)
        if version in range(1, FORMAT):
            writer = body.get("writer") or "of an earlier version"
            raise DecodeError(f"format {version} is no longer read; let mqcd {writer} empty the queue first")
        if version is not None and version != FORMAT:
            raise DecodeError(unknown(f"format {version}", body.get("writer")))
        if body.keys() - _EDIT_FIELDS:
            raise DecodeError(f"unknown fields {sorted(body.keys() - _EDIT_FIELDS)}")
        return _edit(body), version
    except (ValueError, TypeError, AttributeError) as error:
        raise DecodeError(f"the line is not an edit: {error}") from error


def _edit(body: dict[str, Any]) -> Edit:
    """Raises ValueError, TypeError or AttributeError for what cannot be an edit."""
    totals = body.pop("totals", None)
    add = tuple(ClusterState(**cluster) for cluster in body.pop("add", ()))
    files = tuple(KeyFile(**each) for each in body.pop("keys", ()))
    lists: dict[str, Any] = {key: tuple(map(str, body.pop(key, ()))) for key in ("end", "imports")}
    writer = body.pop("writer", None)
    if not isinstance(writer, str | None):
        raise ValueError("a name is not one")
    edit = Edit(writer=writer, totals=totals, add=add, keys=files, **lists, **body)
    counts = {Verb(verb): count for verb, count in ({} if totals is None else totals).items()}
    numbers = [*body.values(), *counts.values()]
    named: tuple[ClusterState | KeyFile, ...] = (*add, *files)
    for each in named:
        numbers += [value for key, value in _fields(each) if key not in ("name", "tenant")]
    for cluster in add:
        Area(cluster.area)
        if not isinstance(cluster.tenant, str):
            raise ValueError("a tenant is not one")
    if not all(type(number) is int for number in numbers):
        raise ValueError("a number is not one")
    if edit.silos is not None and not 0 < edit.silos <= MOST_SILOS:
        raise ValueError("no spool has so many silos")
    return edit


def read(disk: Disk, path: Path) -> ManifestState | None:
    """The state that the file holds; None when there is no file. Raises StoreDamaged."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    state = ManifestState()
    lines, torn = split_lines(data)
    if not lines:
        raise StoreDamaged(f"{path} holds no whole line. Run `mqcd fsck`.")
    for number, line in enumerate(lines, 1):
        try:
            edit, version = decode(line)
            if number == 1 and version is None:
                raise DecodeError("the first line carries no format version")
        except DecodeError as error:
            raise StoreDamaged(f"{path}, line {number}: {error}. Run `mqcd fsck`.") from error
        state.apply(edit)
    state.dropped = len(torn)
    if torn:
        log.warning("%s: the last edit was cut off by a crash and did not happen", path)
    return state


class Manifest:
    """The open MANIFEST. `commit` blocks for a sync: call it off the event loop, one at a time."""

    def __init__(self, disk: Disk, path: Path, state: ManifestState) -> None:
        self._disk = disk
        self._path = path
        self._fd = -1
        self._end = 0
        self._first_end = 0
        """Where the first line ends."""
        self.state = state
        self.uncertain = False
        """Whether the disk may hold an edit that `state` does not."""

    def write_anew(self, state: ManifestState | None = None) -> None:
        """Replace the log by one line: `state`, or what it says already. Sets its `writer`.

        Raises OSError: then the old log or the new one stands, and the next commit writes another.
        """
        following = state or self.state
        following.writer = newest(following.writer, __version__)
        line = encode(following.whole(), first=True)
        self._close()
        self._end = self._first_end = self._disk.replace_file(self._path, [line])
        self._fd = self._disk.open(self._path, os.O_RDWR)
        self.state, self.uncertain = following, False

    def commit(self, edit: Edit) -> None:
        """Make an edit durable, then take it into the state. Raises OSError: then it did not happen.

        | after a failure `take_back` | on disk | `uncertain` | the next commit |
        |---|---|---|---|
        | has succeeded | one line, without the edit | no | appends a line |
        | has failed, too | the log or its replacement, perhaps with the edit | yes | replaces the log |
        """
        following = self.state.after(edit)
        try:
            if self._fd < 0 or self._end - self._first_end > COMPACT_AT:
                self.write_anew(following)
                return
            line = encode(edit)
            self._disk.pwritev(self._fd, [line], self._end)
            self._disk.sync_appended(self._fd)
        except OSError:
            # Never trust a file after a failed sync: a new one takes its place.
            self.take_back()
            raise
        self._end += len(line)
        self.state = following

    def take_back(self) -> None:
        """Put the state without the edit that failed in place: a kill would bring the edit to light.

        As long as that fails too, `uncertain` says so; call again.
        """
        self.uncertain = True
        try:
            self.write_anew()
        except OSError as error:
            self._close()
            log.error("%s: an edit failed and cannot be taken back yet: %s", self._path, error)

    def close(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            let_go(self._disk, self._fd, "the MANIFEST")
            self._fd = -1
