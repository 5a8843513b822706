"""Files of idempotency keys, as `mqcd fsck` checks and mends them.

A key that is lost makes a repeat a message of its own; no mail is lost with it. So a repair gives up what
cannot be read, and writes anew what can be.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from mqcd.core.errors import DecodeError
from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.queue.admin.findings import Findings, Kind, Problem
from mqcd.queue.admin.ownership import Owned
from mqcd.queue.format import keys
from mqcd.queue.keys.file import DIRECTORY, KEY_FILE, OpenFile, WriteKeys, write_keys
from mqcd.queue.manifest.state import Edit, KeyFile, ManifestState

_ADVICE = "; a repeat under one of them would be a second message; `mqcd fsck --repair` forgets them"


def look_at_keys(disk: Disk, queue_root: Path, state: ManifestState, found: Findings) -> None:
    """Check each file that the MANIFEST lists, and note others. Raises OSError."""
    for file in state.keys.values():
        if wrong := _wrong_with(disk, queue_root, file):
            found.problems.append(Problem(Kind.KEYS, queue_root / file.name, None, wrong + _ADVICE))
    for name in disk.names(queue_root / DIRECTORY):
        path = queue_root / DIRECTORY / name
        if KEY_FILE.fullmatch(name) is None:
            found.notes.append(Problem(Kind.STRAY, path, None, "is none of the queue's files"))
        elif f"{DIRECTORY}/{name}" not in state.keys:
            text = "was left half-written" if name.endswith(TEMP_SUFFIX) else "is not listed in the MANIFEST"
            found.notes.append(Problem(Kind.ORPHAN, path, None, text))


def _wrong_with(disk: Disk, queue_root: Path, file: KeyFile) -> str:
    """What is wrong with a file; "" = nothing."""
    try:
        OpenFile.open(disk, queue_root, file).close()
        records = list(keys.records_of(disk.read_file(queue_root / file.name)))
    except OSError as error:
        return f"cannot be read: {error.strerror}: {file.records} idempotency keys"
    except DecodeError as error:
        return f"{error}: {file.records} idempotency keys"
    bad = file.records - sum(map(keys.sound, records))
    if bad:
        return f"{bad} idempotency keys are missing or do not check"
    return "" if records == sorted(records) else "the idempotency keys are not in their order"


def mend_keys(owned: Owned, before: Findings) -> None:
    """Write the keys that check of damaged files into a new one. Raises OSError."""
    wrong = {problem.path for problem in before.problems if problem.kind is Kind.KEYS}
    names = [name for name in owned.manifest.state.keys if owned.queue_root / name in wrong]
    if not names:
        return
    task = WriteKeys(queue_root=owned.queue_root, segment=owned.number, records=b"", merged=names, since=0)
    written = write_keys(owned.disk, task).file
    owned.commit(Edit(keys=() if written is None else (written,), end=tuple(names)))
    for name in names:
        with suppress(FileNotFoundError):
            owned.disk.unlink(owned.queue_root / name)
