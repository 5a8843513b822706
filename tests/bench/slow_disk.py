"""mqcd as `python -m mqcd`, where each sync of a file below a directory takes longer, as on a slower disk.

MQCD_SLOW_ROOT names the directory, MQCD_SLOW_MS the time, MQCD_SLOW_RATE how many octets a second it takes
(0, the default, is no limit). Only syncs of the server processes take longer, and not those of their helpers:
clients wait for the first alone.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence

from mqcd.cli.main import main
from mqcd.disk.durable import Buffer, Disk

ROOT, MS, RATE = "MQCD_SLOW_ROOT", "MQCD_SLOW_MS", "MQCD_SLOW_RATE"


def slow_datasync(disk: Disk, fd: int) -> None:
    """Sync, and wait."""
    _datasync(disk, fd)
    if fd not in _filled and os.readlink(f"/proc/self/fd/{fd}").startswith(os.environ[ROOT]):
        rate = float(os.environ.get(RATE, 0))
        time.sleep(float(os.environ[MS]) / 1000 + (_written.pop(fd, 0) / rate if rate else 0))


def counted_pwritev(disk: Disk, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
    """Write, and count the octets until the next sync."""
    end = _pwritev(disk, fd, buffers, offset)
    _written[fd] += 0 if fd in _filled else sum(map(len, buffers))
    return end


def uncounted_zero_fill(disk: Disk, fd: int, start: int, end: int) -> None:
    """Fill space that was never written, which happens once in a queue's life."""
    _filled.add(fd)
    _zero_fill(disk, fd, start, end)
    _filled.remove(fd)


_written: Counter[int] = Counter()
_filled: set[int] = set()
"""Files that are being filled."""
_datasync, _pwritev, _zero_fill = Disk.datasync, Disk.pwritev, Disk.zero_fill

if __name__ == "__main__":
    Disk.datasync = slow_datasync  # type: ignore[assignment, method-assign]
    Disk.pwritev = counted_pwritev  # type: ignore[assignment, method-assign]
    Disk.zero_fill = uncounted_zero_fill  # type: ignore[assignment, method-assign]
    raise SystemExit(main())
