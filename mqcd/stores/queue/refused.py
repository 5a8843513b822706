"""Messages that were refused, and of which the store may have something nevertheless, which must go.

A write that fails may have placed some of its messages; where the answer was lost, all of them. Their senders
send them again, so none of these may be delivered. They are removed by writes of removals alone:

| a message | until | then |
|---|---|---|
| goes with others | the removal is durable | it is removed; after the last of `times` it is forgotten |
| | the removal fails | it goes apart: one of them may be what the store does not remove |
| goes apart, a removal of its own | the removal is durable | it is removed, or forgotten, as above |
| | the removal fails | it goes behind the others that go apart |
| is removed | `try_again` | it goes with others: the write that failed may arrive late |
| any | it comes again | it is forgotten: its new write replaces what is there |

After a failure nothing is removed until `try_again`. The first removal after that is of one message: while
the store cannot be written, each try sends only one more apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from mqcd.core.value import value
from mqcd.stores.backend import Change, Stored

TIMES_SHARED = 5
"""Removals from a shared store, whose server may make a write after this node has given it up."""


@value(kw_only=False)
class _Remains:
    numbers: Sequence[int]
    """Of the values that may be there."""
    values: int
    """Their hash."""
    left: int
    """Removals still to be made; at least one."""
    is_known: bool = False
    """Whether it was the one message of a removal that failed."""


class Refused:
    """Of one queue, by SPID."""

    def __init__(self, times: int, most: int) -> None:
        """`times`: how often each is removed. `most`: messages of one removal."""
        self._times = times
        self._most = most
        self.room = most
        """Messages of the next removal: none after one that failed, one after that and `try_again`."""
        self._together: dict[int, _Remains] = {}
        self._apart: dict[int, _Remains] = {}
        self._removed: dict[int, _Remains] = {}
        self._states = self._together, self._apart, self._removed
        """Each message is in one of them."""

    def __bool__(self) -> bool:
        return any(self._states)

    def may_be_there(self, spid: int) -> bool:
        """Whether the store may have it, though nothing arrives late."""
        return any(some[spid].left == self._times for some in self._states if spid in some)

    def is_blocked(self, spid: int) -> bool:
        """Whether the store may have it until `try_again`, or longer."""
        return not self.room and self.may_be_there(spid)

    def add(self, messages: Mapping[int, Mapping[int, bytes]]) -> None:
        """These are to be removed; with the values that were to be written."""
        self.forget(messages)
        for spid, values in messages.items():
            self._together[spid] = _Remains(sorted(values), _hash(values), self._times)

    def take_back(self, stored: Stored) -> bool:
        """Whether this message is one of these: then it is to be removed anew. SPIDs of mail that was refused
        when the lease ran out may come again, from the node that has this one's number now."""
        each = self._take(stored.spid)
        if each is None or each.values != _hash(stored.values):
            return False
        self.add({stored.spid: stored.values})
        return True

    def forget(self, spids: Iterable[int]) -> None:
        """These come again."""
        for spid in spids:
            self._take(spid)

    def _take(self, spid: int) -> _Remains | None:
        found = (some.pop(spid) for some in self._states if spid in some)
        return next(found, None)

    def removals(self) -> Sequence[Change]:
        """The changes that remove what is to be removed next."""
        some, most = (self._together, self.room) if self._together else (self._apart, min(self.room, 1))
        return [
            Change(spid=spid, puts={}, drops=each.numbers, due=None, values=dict)
            for spid, each in islice(some.items(), most)
        ]

    def removed(self, spids: Iterable[int]) -> None:
        """They are not there any more, or another node's."""
        self.room = self._most
        for spid in spids:
            if (each := self._take(spid)) is not None and each.left > 1:
                self._removed[spid] = replace(each, left=each.left - 1)

    def failed(self, spids: Collection[int]) -> bool:
        """A removal has failed. Returns whether that is news: not of a message that is known for it."""
        self.room = 0
        is_alone, is_news = len(spids) == 1, False
        for spid in spids:
            if (each := self._take(spid)) is not None:
                is_news |= not each.is_known
                self._apart[spid] = replace(each, is_known=is_alone)
        return is_news

    def try_again(self) -> None:
        """All are to be removed now."""
        self.room = self.room or 1
        self._together.update(self._removed)
        self._removed.clear()


def _hash(values: Mapping[int, bytes]) -> int:
    return hash(frozenset(values.items()))
