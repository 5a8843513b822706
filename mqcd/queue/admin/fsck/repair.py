"""`mqcd fsck --repair`: what can be mended without guessing, on a queue whose lock is held.

Damaged record lines go to the quarantine, and what is whole in their cluster to a new one, by one MANIFEST
edit. So do the keys that check of a damaged key file. Files that nothing refers to are removed; but only
half-written ones while they may belong to what cannot be read, or is in quarantine (`Findings.withheld`).
What is lost (a cluster or the end of one, a content, an edit in the middle of the MANIFEST) is left as it is:
nothing here could bring it back. A lost uuid is written again where the files show that the roots belong
together. Raises OSError.
"""

from __future__ import annotations

from mqcd.core.errors import DecodeError
from mqcd.core.model import Area
from mqcd.core.progress import Progress, no_progress
from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.queue.admin.findings import Findings, Kind
from mqcd.queue.admin.fsck.keyfiles import mend_keys
from mqcd.queue.admin.fsck.survey import survey
from mqcd.queue.admin.ownership import Owned
from mqcd.queue.clusters import file as cluster
from mqcd.queue.clusters.quarantine import Stretch, extend, shared, to_quarantine
from mqcd.queue.disk.owner_lock import name_again, take_lock
from mqcd.queue.format import record
from mqcd.queue.manifest.state import ClusterState, Edit
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.recovery.imports import name_events

_UNPROVEN = frozenset((Kind.MANIFEST, Kind.JOURNAL, Kind.CLUSTER))
"""Problems that leave so much unknown of what the records need that no uuid may be written again. What hides
single records (`findings._UNREAD`) is not among them: their contents are orphans, which prevent it, too."""


async def mend_roots(disk: Disk, options: Options, progress: Progress = no_progress) -> None:
    """Write a uuid that was lost or damaged, before the queue is owned. Raises StoreBusy, OSError.

    Only where the files show that the spool is this queue's: its silos are there, each content that the
    records need is, and none that they do not need.
    """
    queue_root, spool_root = options.settings.rootpath, options.settings.spool.rootpath
    lock = await take_lock(disk, queue_root)
    try:
        found = survey(disk, options, progress, ours=True)
        kinds = {problem.kind for problem in found.problems}
        if Kind.ROOTS not in kinds or found.bereft or kinds & _UNPROVEN:
            return
        strange = any(path.is_relative_to(spool_root) for path in found.orphans)
        if not strange and disk.is_dir(spool_root / "s01"):
            name_again(disk, [queue_root, spool_root])
    finally:
        disk.close(lock)


def repair(owned: Owned, progress: Progress = no_progress) -> Findings:
    """Mend what can be; returns what is found afterwards."""
    name_events(owned.disk, owned.options, owned.manifest.state)
    before = survey(owned.disk, owned.options, progress, ours=True)
    _mend_clusters(owned, before.damaged)
    mend_keys(owned, before)
    _remove_orphans(owned, before)
    return survey(owned.disk, owned.options, progress, ours=True)


def _mend_clusters(owned: Owned, names: list[str]) -> None:
    lines: dict[Area, list[cluster.Line]] = {area: [] for area in Area}
    mended: list[ClusterState] = []
    for name in names:
        state = owned.manifest.state.clusters[name]
        whole = _take_apart(owned, state)
        if whole is not None:
            lines[state.area] += whole
            mended.append(state)
    if not mended:
        return
    added = owned.write_clusters((area, each) for area, each in lines.items() if each)
    owned.commit(Edit(add=tuple(added), end=tuple(state.name for state in mended)))
    owned.remove_clusters(mended)


def _take_apart(owned: Owned, state: ClusterState) -> list[cluster.Line] | None:
    """The lines that check, once the others are in quarantine.

    None for a cluster of a version that is not known here: its lines may be whole.
    """
    data = owned.disk.read_file(owned.queue_root / state.name)
    head = data[: cluster.START]
    whole: list[cluster.Line] = []
    try:
        cluster.check_first_line(data, owned.queue_root / state.name)
    except cluster.OtherVersion:
        return None
    except DecodeError:
        to_quarantine(owned.disk, owned.queue_root, state.name, 0, head, records=0)
    offset = state.cursor
    stretches: list[Stretch] = []
    for raw in cluster.split_lines(data[state.cursor : state.size]):
        try:
            record.decode(raw)
            glance = record.sound(raw)
        except DecodeError:
            extend(stretches, offset, raw)
        else:
            whole.append(cluster.Line.of(glance, raw))
        offset += len(raw)
    for find in shared(stretches, state.left - len(whole)):
        to_quarantine(owned.disk, owned.queue_root, state.name, *find)
    return whole


def _remove_orphans(owned: Owned, before: Findings) -> None:
    for path in before.orphans:
        if path.name.endswith(TEMP_SUFFIX) or not before.withheld:
            owned.disk.unlink(path)
