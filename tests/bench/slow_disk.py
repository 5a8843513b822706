"""mqcd as `python -m mqcd`, where each sync of a file below a directory takes longer, as on a slower disk.

MQCD_SLOW_ROOT names the directory, MQCD_SLOW_MS the time. Only syncs of the server processes take longer, and
not those of their helpers: clients wait for the first alone.
"""

from __future__ import annotations

import os
import time

from mqcd.cli.main import main
from mqcd.disk.durable import Disk

ROOT, MS = "MQCD_SLOW_ROOT", "MQCD_SLOW_MS"


def slow_datasync(disk: Disk, fd: int) -> None:
    """Sync, and wait."""
    _datasync(disk, fd)
    if os.readlink(f"/proc/self/fd/{fd}").startswith(os.environ[ROOT]):
        time.sleep(float(os.environ[MS]) / 1000)


_datasync = Disk.datasync

if __name__ == "__main__":
    Disk.datasync = slow_datasync  # type: ignore[assignment, method-assign]
    raise SystemExit(main())
