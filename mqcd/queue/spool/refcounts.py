"""When may a message's spool file be removed: reference counts of messages that had several recipients.

A message with a single recipient (its SPID says so) needs no count. Counts of messages accepted in this
run are kept, at most `maxspidcache` of them (0 = no limit). The file of a message without a count is left to
the sweep of the spool (`mqcd.queue.checkpoint.spool_gc`); nothing is removed by guess.
"""

from __future__ import annotations

from mqcd.core.queueing.spid import is_several


class References:
    """Counts of unfinished recipients."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[int, int] = {}
        self.batch: set[int] = set()
        """Messages in the spool that lost a recipient and whose count is not known. One sweep is made for all
        of them (`checkpoint.spool_gc`); it is no batch of an operator."""
        self.misses = 0

    def __len__(self) -> int:
        return len(self._counts)

    def accepted(self, spid: int, recipients: int) -> None:
        """A message is in the queue."""
        if is_several(spid) and (not self._limit or len(self._counts) < self._limit):
            self._counts[spid] = recipients

    def finished(self, spid: int, in_spool: bool) -> bool:
        """A recipient has left the queue. True when the message's spool file may go with it."""
        if not is_several(spid):
            return in_spool
        count = self._counts.get(spid)
        if count is None:
            self.misses += in_spool
            if in_spool:
                self.batch.add(spid)
            return False
        if count > 1:
            self._counts[spid] = count - 1
            return False
        del self._counts[spid]
        return in_spool
