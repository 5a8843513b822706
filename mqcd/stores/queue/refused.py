"""Messages that were refused, and of which the store may have something nevertheless, which must go.

A write that fails may have placed some of its messages; where the answer was lost, all of them. Their senders
send them again, so none of these may be delivered. Each is removed by a write of its own, before any other:

| a message | until | then |
|---|---|---|
| is to be removed | the removal is durable | it has been removed; in a store of one process it is forgotten |
| | the removal fails | it and all others wait for `try_again` |
| has been removed | `try_again` | it is to be removed: the write that failed may arrive late |
| | it was removed `TIMES_SHARED` times | it is forgotten |
| either | it comes again | it is forgotten: its new write replaces what is there |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from mqcd.stores.backend import Change

TIMES_SHARED = 5
"""Removals from a shared store, whose server may make a write after this node has given it up."""


@dataclass(slots=True)
class _Remains:
    numbers: Collection[int]
    """Of the values that may be there."""
    left: int
    """Removals still to be made; at least one."""
    is_due: bool = True


class Refused:
    """Of one queue, by SPID."""

    def __init__(self, times: int = 1) -> None:
        """`times`: how often each is removed."""
        self._times = times
        self._remains: dict[int, _Remains] = {}
        self._fails = False
        """Whether the last removal failed: the next one waits for `try_again`."""

    def __bool__(self) -> bool:
        return bool(self._remains)

    def __contains__(self, spid: int) -> bool:
        return spid in self._remains

    def was_removed(self, spid: int) -> bool:
        """Whether it is known not to be there, as far as nothing arrives late."""
        return self._remains[spid].left < self._times

    def add(self, messages: Mapping[int, Collection[int]]) -> None:
        """These are to be removed; with the numbers of their values."""
        for spid, numbers in messages.items():
            self._remains[spid] = _Remains(numbers, self._times)

    def forget(self, spids: Iterable[int]) -> None:
        """These come again."""
        for spid in spids:
            self._remains.pop(spid, None)

    def removals(self, most: int) -> Sequence[Change]:
        """The changes that remove what is to be removed now, at most so many."""
        if self._fails:
            return ()
        due = ((spid, each) for spid, each in self._remains.items() if each.is_due)
        return [
            Change(spid=spid, puts={}, drops=sorted(each.numbers), due=None, values=dict)
            for spid, each in islice(due, most)
        ]

    def removed(self, spids: Iterable[int]) -> None:
        """They are not there any more, or another node's."""
        for spid in spids:
            if (each := self._remains.get(spid)) is not None:
                each.left, each.is_due = each.left - 1, False
                if not each.left:
                    del self._remains[spid]

    def failed(self) -> None:
        """A removal has failed."""
        self._fails = True

    def try_again(self) -> None:
        """All are to be removed now."""
        self._fails = False
        for each in self._remains.values():
            each.is_due = True
