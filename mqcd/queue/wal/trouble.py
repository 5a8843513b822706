"""Failed writes of the journal: how many in a row, what they refuse, when a failed frame can no longer count.

| frame | waits after the first failure | and after more: the journal is failing |
|---|---|---|
| ACCEPT of the failed group | refused: a client waits | refused |
| what has happened already (verdicts, parks, reports) | waits | waits |
| all others: accepts and requests | waits | refused, at once from then on |

A failed frame may stand whole in the page cache and would count after a kill, until the header of the next
segment ends the chain before it. `when_certain` waits for that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from mqcd.queue.format.frame import Kind
from mqcd.queue.wal.pending import ALL, HAPPENED, Append, fail, refuse

RETRY_MS = (0, 1000, 10_000)
"""Waits before a new segment is tried after the first, second, ... failure in a row; the last repeats."""


class Trouble:
    """Failures since the last group that was written."""

    def __init__(self) -> None:
        self.failures = 0
        """Groups in a row that could not be written."""
        self.text = ""
        """Why the last of them could not; "" when writing goes well."""
        self._cause: OSError | None = None
        self._when_certain: list[Callable[[], None]] = []

    @property
    def failing(self) -> bool:
        """Whether nothing new may be promised."""
        return self.failures > 1

    @property
    def retry_ms(self) -> int:
        """How long to wait before a new segment is tried."""
        return RETRY_MS[min(self.failures, len(RETRY_MS)) - 1]

    def failed(self, text: str, cause: OSError) -> None:
        """A group could not be written."""
        self.failures += 1
        self.text, self._cause = text, cause

    def mended(self) -> None:
        """A group has been written: the chain is known."""
        self.failures, self.text, self._cause = 0, "", None
        certain, self._when_certain = self._when_certain, []
        for callback in certain:
            callback()

    def when_certain(self, callback: Callable[[], None]) -> None:
        """Run `callback` once no failed frame can be replayed after a crash; at once if that is so already.

        It does not run if writing never succeeds again.
        """
        if self.failures:
            self._when_certain.append(callback)
        else:
            callback()

    def refuses(self, item: Append) -> bool:
        """Fail a frame that comes while the journal is failing, unless it has happened already."""
        if not self.failing or item.kind in HAPPENED:
            return False
        fail(item, self.text, self._cause)
        return True

    def refuse(self, group: Sequence[Append], pending: deque[Append], *, ended: bool) -> None:
        """Fail what the last failure refuses: of `group`, which was not written, and of all `pending`."""
        if ended:
            refuse(pending, ALL, self.text, self._cause)
        elif self.failing:
            refuse(pending, ALL - HAPPENED, self.text, self._cause)
        else:
            for item in group:
                if item.kind is Kind.ACCEPT:
                    fail(item, self.text, self._cause)
                    pending.remove(item)
