"""Events of mail that was imported: written under a temporary name before the import's MANIFEST edit, named
after it. A kill in between leaves the name to be given by the next start, import or `fsck --repair`.
"""

from __future__ import annotations

from pathlib import Path

from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.eventlog.files import events_path
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.memory.shard_state import Options

DEPARTED = "departed"
"""What the names of departures begin with: mail that went to another store, and of which no key is kept."""


def events_temp(options: Options, number: int) -> Path:
    """The temporary name of the event file of an import that took segment number `number`."""
    path = events_path(options.events, options.source, number)
    return path.with_name(path.name + TEMP_SUFFIX)


def pending_events(disk: Disk, options: Options, state: ManifestState) -> list[Path]:
    """Event files of imports that have not got their name yet."""
    names = set(disk.names(options.events))
    paths = (events_temp(options, int(name.rpartition("-")[2])) for name in state.imports)
    return [path for path in paths if path.name in names]


def name_events(disk: Disk, options: Options, state: ManifestState) -> None:
    """Give event files of imports their name, where a kill came before it. Raises OSError."""
    for path in pending_events(disk, options, state):
        final = path.with_name(path.name.removesuffix(TEMP_SUFFIX))
        try:
            # The old name goes when the new one is durable: nothing could write this file again.
            disk.link(path, final)
        except OSError:
            disk.rename(path, final)
        disk.sync_dir(options.events)
        disk.unlink(path)
