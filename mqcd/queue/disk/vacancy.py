"""Whether a queue root without a MANIFEST is vacant: only there a queue may be made, and is there none.

A queue of Mailismus has the same directories, and cannot be used before an import. Where a journal or
clusters lie, the MANIFEST was lost, and what they hold is mail that was accepted. Readers start quicker
without what `owner_lock` loads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mqcd.core.errors import StoreDamaged, StoreUnavailable
from mqcd.core.model import Area
from mqcd.disk.durable import Disk

_MAILISMUS = re.compile(r"M[0-9A-F]{16}-\d+(-p\d+)?\.mqc")
"""Its clusters; those of mqcd never have so many digits."""


def check_vacant(disk: Disk, queue_root: Path) -> None:
    """Raises StoreUnavailable for a queue of Mailismus, StoreDamaged for one that has lost its MANIFEST,
    OSError."""
    check_maker(disk, queue_root)
    if _holds_mail(disk, queue_root):
        path = queue_root / "MANIFEST"
        raise StoreDamaged(f"{path} is missing though the queue holds files. Run `mqcd fsck`.")


def check_maker(disk: Disk, queue_root: Path) -> None:
    """See that a root without a MANIFEST is no queue of Mailismus. Raises StoreUnavailable, OSError."""
    if any(_MAILISMUS.fullmatch(name) for name in _names(disk, queue_root)):
        text = "give mqcd a directory of its own with --var, and bring this mail there"
        raise StoreUnavailable(f"{queue_root} is a queue of Mailismus: {text} with `mqcd import mailismus`")


def _holds_mail(disk: Disk, queue_root: Path) -> bool:
    """Whether there is anything that a MANIFEST should have known."""
    if any(name.endswith(".wal") or name.isdecimal() for name in disk.names(queue_root / "journal")):
        return True
    return any(name.endswith(".mqc") for name in _names(disk, queue_root))


def _names(disk: Disk, queue_root: Path) -> Iterator[str]:
    """What lies where clusters may lie."""
    for area in Area:
        for top in disk.names(queue_root / area):
            yield top
            yield from disk.names(queue_root / area / top)
