"""A lock on what a directory holds, for files that several processes change: an flock on the directory.

So no file of its own comes to lie beside them, with an owner that one of the processes may not open. Readers
take none: they find each file whole, the old or the new one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqcd.disk.durable import Disk

_LOOK_S = 0.05


@contextmanager
def holding(disk: Disk, directory: Path, patience: float = 0) -> Iterator[bool]:
    """Hold the lock while the block lasts. Yields False where others have held it for all of `patience`, s.

    Waits in the calling thread. The system ends the lock of a process that ends. Raises OSError.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while not (ours := disk.lock(fd, exclusive=True)) and patience > 0:
            time.sleep(_LOOK_S)
            patience -= _LOOK_S
        try:
            yield ours
        finally:
            if ours:
                disk.unlock(fd)
    finally:
        os.close(fd)
