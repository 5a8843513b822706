"""Clusters: size-capped `.mqc` files of record lines, written once, read from a cursor on.

The first line names the format; then one record a line. A cluster is never changed: what has been taken
from it is what its cursor says, in the MANIFEST and in TAKE frames. Names carry the segment that was
evacuated into it, so that none is ever used twice.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from mqcd.core.errors import DecodeError, StoreDamaged
from mqcd.core.model import BY_DUE, Area
from mqcd.core.queueing.holding import Holding
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.queue.format.record import Glance
from mqcd.queue.format.versions import unknown
from mqcd.queue.manifest.state import ClusterState

NAME = re.compile(r"M(\d{1,18})-\d+\.mqc")
"""Names of cluster files, with the number of the segment that each was made of; other names are strays."""
FIRST_LINE = b"mqcd-cluster 1\n"
_ANY_VERSION = re.compile(rb"mqcd-cluster (\d{1,9})\n")
VERSION = 1
HEAD = len(FIRST_LINE) + 8
"""Octets in which any version stands."""
HELD_BY_OPERATORS = "+"
"""Directory below `held` of what operators have held; no domain has such a name."""
_HELD = f"{Area.HELD}/"
START = len(FIRST_LINE)
"""The first cursor."""
TENANT_SHARE, TENANT_LEAST = 8, 100
"""A tenant has clusters of its own if it has more than one in so many of the lines of one place, and more
than so many: so a segment makes a few clusters more at most, however many tenants there are."""
_CLAIMED_BY_TENANT = (Area.INCOMING, Area.DEFERRED)


@value(kw_only=False)
class Line:
    """A record line on its way into a cluster."""

    due: int
    received: int
    size: int
    """Octets of its message."""
    raw: bytes
    """Line feed included."""
    tenant: str = ""

    @classmethod
    def of(cls, glance: Glance, raw: bytes) -> Line:
        """A record line as it is."""
        return cls(glance.due, glance.received, glance.size, raw, glance.tenant)


@value(kw_only=False)
class Plan:
    """A cluster to be written."""

    state: ClusterState
    lines: Sequence[Line]


def held_by(queue: str) -> str:
    """The place of a queue of held mail: a domain's, or "" for that of operators."""
    return f"{_HELD}{queue or HELD_BY_OPERATORS}"


def queue_of(name: str) -> str:
    """The domain whose held mail is in a cluster; "" = no domain's alone."""
    queue = name[len(_HELD) :].partition("/")[0] if name.startswith(_HELD) else ""
    return queue if queue != HELD_BY_OPERATORS else ""


def place_of(name: str) -> str:
    """The place of a cluster: its area, or the queue of held mail."""
    return name.rpartition("/")[0] if name.startswith(_HELD) else name.partition("/")[0]


def by_place(area: Area, lines: Sequence[Line], holding: Holding) -> Mapping[str, Sequence[Line]]:
    """The lines of an area by the place that each belongs to."""
    if area is not Area.HELD:
        return {area: lines}
    places: dict[str, list[Line]] = {}
    for line in lines:
        place = held_by(holding.queue_of(Glance(line.raw).domain, line.due))
        places.setdefault(place, []).append(line)
    return places


def plan(
    place: str, lines: Iterable[Line], segment: int, max_size: int, granularity: int, first: int = 0
) -> list[Plan]:
    """Cut the lines of one place into clusters of at most `max_size` octets.

    Those of areas in `BY_DUE` are sorted by due time; deferred and removed ones lie in a directory named
    after the earliest due time inside, rounded down to `granularity` (ms). A single line larger than the cap
    has its own cluster. Their numbers begin at `first`. Tenants with many of the lines have clusters of their
    own, so that claims can take turns between tenants before they read.
    """
    ordered = sorted(lines, key=lambda line: line.due) if _by_due(place) else list(lines)
    plans: list[Plan] = []
    for tenant, own in _by_tenant(place, ordered).items():
        part: list[Line] = []
        size = START
        for line in (*own, None):
            if part and (line is None or size + len(line.raw) > max_size):
                made = _close(place, part, size, segment, first + len(plans), granularity)
                plans.append(replace(made, state=replace(made.state, tenant=tenant)))
                part, size = [], START
            if line is not None:
                part.append(line)
                size += len(line.raw)
    return plans


def _by_tenant(place: str, lines: Sequence[Line]) -> Mapping[str, Sequence[Line]]:
    """The lines of tenants that have many of them, by tenant; those of all others together, under ""."""
    counts = Counter(line.tenant for line in lines)
    if place not in _CLAIMED_BY_TENANT:
        return {"": lines}
    if len(counts) == 1:
        return {next(iter(counts)): lines}
    least = max(len(lines) // TENANT_SHARE, TENANT_LEAST)
    parts: dict[str, list[Line]] = {}
    for line in lines:
        parts.setdefault(line.tenant if counts[line.tenant] > least else "", []).append(line)
    return parts


def _by_due(place: str) -> bool:
    return Area(place.partition("/")[0]) in BY_DUE


def _close(place: str, part: list[Line], size: int, segment: int, index: int, granularity: int) -> Plan:
    by_due = _by_due(place)
    return Plan(
        ClusterState(
            name=_name(place, part[0].due, segment, index, granularity),
            size=size,
            cursor=START,
            left=len(part),
            octets=sum(line.size for line in part),
            received=min(line.received for line in part),
            due=part[0].due if by_due else 0,
            due_last=part[-1].due if by_due else 0,
        ),
        part,
    )


def _name(place: str, due: int, segment: int, index: int, granularity: int) -> str:
    directory = place
    if _by_due(place) and not directory.startswith(_HELD):
        directory += f"/T{due // granularity * granularity // 1000}"
    return f"{directory}/M{segment}-{index}.mqc"


def remainder(
    state: ClusterState, lines: Sequence[bytes], octets: int, index: int, granularity: int
) -> ClusterState:
    """The cluster that some lines of one make, in their order and without line feeds; `octets` of messages.

    Its earliest time of acceptance is that of the whole: most lines are not looked at. Raises DecodeError.
    """
    place = place_of(state.name)
    first, last = Glance(lines[0]), Glance(lines[-1])
    by_due = _by_due(place)
    return ClusterState(
        name=_name(place, first.due, segment_of(state.name), index, granularity),
        size=START + sum(map(len, lines)) + len(lines),
        cursor=START,
        left=len(lines),
        octets=octets,
        received=state.received,
        due=first.due if by_due else 0,
        due_last=last.due if by_due else 0,
        tenant=state.tenant,
    )


def segment_of(name: str) -> int:
    """The segment that a cluster was made of, directly or by division. Raises DecodeError."""
    found = NAME.fullmatch(name.rpartition("/")[2])
    if found is None:
        raise DecodeError(f"{name} is not the name of a cluster")
    return int(found[1])


class OtherVersion(DecodeError):
    """A cluster of a format version that is not known here: nothing in it is damaged."""


def check_first_line(data: bytes, path: Path, writer: str = "") -> None:
    """Raises DecodeError unless `data` begins like a cluster of a version known here.

    `writer` is the version that reads it otherwise, as far as the MANIFEST knows.
    """
    version = _ANY_VERSION.match(data)
    if version is not None and int(version[1]) != VERSION:
        text = unknown(f"{path}: cluster format {int(version[1])}", writer)
        raise OtherVersion(f"{text}: start that one again, and let it empty the queue")
    if not data.startswith(FIRST_LINE):
        shown = data.split(b"\n", 1)[0][:40]
        raise DecodeError(f"{path}: first line {shown!r} is not that of a cluster known here")


def read_from(disk: Disk, path: Path, cursor: int, size: int) -> bytes:
    """The octets of a cluster from `cursor` up to `size`, fewer if the file is shorter. Raises OSError,
    DecodeError."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        check_first_line(disk.pread(fd, HEAD, 0), path)
        return disk.pread(fd, size - cursor, cursor)
    finally:
        disk.close(fd)


def check_known(data: bytes, path: Path, writer: str) -> None:
    """Raises StoreDamaged when `data` begins a cluster of another version. Behind any other first line the
    lines may be sound: it is left to the reader."""
    try:
        check_first_line(data, path, writer)
    except OtherVersion as error:
        raise StoreDamaged(str(error)) from error
    except DecodeError:
        return


def check_version(disk: Disk, path: Path, writer: str) -> None:
    """The same of a cluster's file, as far as it can be read."""
    with suppress(OSError):
        fd = disk.open(path, os.O_RDONLY)
        try:
            check_known(disk.pread(fd, HEAD, 0), path, writer)
        finally:
            disk.close(fd)


def split_lines(data: bytes) -> Iterator[bytes]:
    """The lines of `data`, each with its line feed; a last one without it comes as it is."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end
