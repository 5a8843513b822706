"""Takes messages out of a queue whose lock is held: another store has them.

What stays of the clusters is written anew; one MANIFEST edit is the commit. Events say that the recipients
are discarded, and get their name after the edit, as those of an import do. Contents go last: what a kill
leaves of them the next start's sweep finds. Raises OSError, StoreDamaged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from mqcd.core.errors import DecodeError, StoreDamaged
from mqcd.core.model import Area
from mqcd.queue.admin.ownership import Owned
from mqcd.queue.admin.transfer.admission import ImportEvents
from mqcd.queue.clusters import file as cluster
from mqcd.queue.format import record
from mqcd.queue.manifest.state import Edit
from mqcd.queue.recovery.imports import DEPARTED, events_temp, name_events


def depart(owned: Owned, spids: Set[int], reason: str) -> None:
    """Remove these messages by one edit; `reason` goes into their events. Once for each `owned`."""
    state = owned.manifest.state
    events = ImportEvents(owned, state.sequence, owned.clock.now())
    staying: dict[Area, list[cluster.Line]] = defaultdict(list)
    before = list(state.clusters.values())
    for each in before:
        path = owned.queue_root / each.name
        data = owned.disk.read_file(path)
        try:
            cluster.check_first_line(data, path)
            for raw in cluster.split_lines(data[each.cursor : each.size]):
                glance = record.sound(raw)
                if record.decode(raw).spid in spids:
                    events.discarded(raw, reason)
                else:
                    staying[each.area].append(cluster.Line.of(glance, raw))
        except DecodeError as error:
            raise StoreDamaged(f"{path}: {error}. Run `mqcd fsck --repair`.") from error
    events.write(events_temp(owned.options, owned.number))
    added = owned.write_clusters(staying.items()) if staying else []
    totals = state.totals + events.totals
    owned.commit(
        Edit(
            sequence=events.sequence,
            totals={str(verb): count for verb, count in totals.items()},
            add=tuple(added),
            end=tuple(each.name for each in before),
            imports=(f"{DEPARTED}-{owned.number}",),
        )
    )
    name_events(owned.disk, owned.options, owned.manifest.state)
    owned.remove_clusters(before)
    for spid in spids:
        owned.disk.unlink(owned.silos.path(spid))
