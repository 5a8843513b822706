"""Who does a shard's blocking work: one thread that commits, a few for other IO, one helper process, and
a process for each scan.

Everything else happens on the event loop. A test gives workers that do all of it at once, on the loop, so
that one order of events is the only one.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor

from mqcd.queue.committer import Committer, CommitterThread
from mqcd.queue.durable import Disk
from mqcd.queue.helper import Helper
from mqcd.queue.scanning import Scans

_IO_THREADS = 4


class Workers:
    """Makes them for one opening of a shard; whoever they are given to ends them."""

    def executor(self) -> Executor:
        """For blocking reads, large contents and MANIFEST edits."""
        return ThreadPoolExecutor(max_workers=_IO_THREADS, thread_name_prefix="mqcd-io")

    def committer(self, disk: Disk) -> Committer:
        """Writes and syncs groups; call it on the loop."""
        return CommitterThread(disk, asyncio.get_running_loop())

    def helper(self, lock_fd: int) -> Helper:
        """Exports, evacuates, resolves references and sweeps; it shares the shard's lock."""
        return Helper(lock_fd)

    def scans(self) -> Scans:
        """Read the whole queue, a process for each."""
        return Scans()
