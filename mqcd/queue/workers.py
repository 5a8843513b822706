"""A shard's threads and processes: the committer, other IO, the helper, scans.

Everything else happens on the event loop. A test gives workers that do all of it at once, on the loop, so
that one order of events is the only one.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor

from mqcd.disk.durable import Disk
from mqcd.queue.helper.helper import Helper
from mqcd.queue.helper.scans import Scans
from mqcd.queue.wal.committer import Committer, CommitterThread

_IO_THREADS = 4


def ready_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool all of whose threads run already: when a stop needs them, perhaps none can be started any more.

    Raises OSError when that is so now.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    all_run = threading.Barrier(threads + 1)
    try:
        for _ in range(threads):
            pool.submit(all_run.wait)
    except RuntimeError as error:
        all_run.abort()
        pool.shutdown(wait=False)
        text = "no thread can be started; raise the limit on processes and threads (ulimit -u, TasksMax)"
        raise OSError(errno.EAGAIN, text) from error
    all_run.wait()
    return pool


class Workers:
    """Makes them for one opening of a shard; their user ends them."""

    def executor(self) -> Executor:
        """For blocking reads, large contents and MANIFEST edits. Raises OSError."""
        return ready_pool(_IO_THREADS, "mqcd-io")

    async def end(self, executor: Executor) -> None:
        """Return once the threads of `executor` have ended: not as long as a disk hangs under one."""
        over: Future[None] = Future()
        over.set_running_or_notify_cancel()

        def shut_down() -> None:
            executor.shutdown()
            over.set_result(None)

        try:
            threading.Thread(target=shut_down, daemon=True).start()
        except RuntimeError:
            # No thread can be started any more: the loop itself waits.
            shut_down()
        await asyncio.wrap_future(over)

    def committer(self, disk: Disk) -> Committer:
        """Writes and syncs groups; call it on the loop."""
        return CommitterThread(disk, asyncio.get_running_loop())

    def helper(self, lock_fd: int) -> Helper:
        """Exports, evacuates, resolves references and sweeps; it shares the shard's lock."""
        return Helper(lock_fd)

    def scans(self) -> Scans:
        """Read the whole queue, a process for each."""
        return Scans()
