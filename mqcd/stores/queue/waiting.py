"""The recipients that wait in memory for a claim: new ones, ones with a due time, bounces, and
what operators have held or removed. Pure.

Each stands in exactly one of the four. A heap may hold keys of recipients that were removed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TypeGuard

from mqcd.core.model import Area, Recipient
from mqcd.core.queueing.spid import accepted_by
from mqcd.core.queueing.turns import ByTenant, DueByTenant, Places, Take

KEPT_FROM_URGENT = 8
"""One in so many turns of new mail is kept from urgent mail."""
Key = tuple[int, int]
_AT_REST = frozenset({Area.HELD, Area.REMOVED})
Overdue = Callable[[Recipient], bool]


class Waiting:
    """Of one queue. Times in ms."""

    def __init__(self) -> None:
        self._new: dict[Key, Recipient] = {}
        self._order = ByTenant(lambda: _Row(self._new))
        self._urgent = ByTenant(lambda: _Row(self._new))
        """Of the new ones, those with a priority above 0."""
        self._kept = 0
        """Turns since the last that was kept from urgent mail."""
        self._later: dict[Key, tuple[int, Recipient]] = {}
        """With the time from which each can be claimed: a row with another time says nothing."""
        self._due = DueByTenant(lambda: _Dues(self._later))
        self._bounces: dict[Key, Recipient] = {}
        self._at_rest: dict[Key, Recipient] = {}
        """Held and removed ones."""
        self._held: dict[str, dict[Key, None]] = {}
        """By domain, what rests for it, in order; perhaps also what no longer does."""
        self._held_ends: list[tuple[int, Key]] = []
        """A heap of the same, by the end of that."""
        self._new_turn = True

    @property
    def has_new(self) -> bool:
        """Whether new mail waits."""
        return bool(self._new)

    def add(self, recipient: Recipient) -> None:
        """It waits, where its record says."""
        key = recipient.key
        if recipient.area is Area.BOUNCES:
            self._bounces[key] = recipient
        elif recipient.area in _AT_REST:
            self._at_rest[key] = recipient
            if recipient.area is Area.HELD and recipient.due:
                queue = self._held.setdefault(recipient.lane_key, {})
                queue.pop(key, None)
                queue[key] = None
                heapq.heappush(self._held_ends, (recipient.due, key))
        elif recipient.area is Area.INCOMING and not recipient.due:
            self._new[key] = recipient
            rows = self._urgent if recipient.envelope.priority > 0 else self._order
            rows.row(recipient.envelope.tenant).push(key)
        else:
            self._put_off(recipient, recipient.due)

    def _put_off(self, recipient: Recipient, due: int) -> None:
        self._later[recipient.key] = due, recipient
        self._due.row(recipient.envelope.tenant, due).push(due, recipient.key)

    def claim(
        self,
        room: int,
        now: int,
        skip: Mapping[str, int],
        overdue: Overdue | None,
        received_by: int | None,
        places: Places | None = None,
    ) -> list[Recipient]:
        """See `core.ports.QueueStore.claim`."""
        found: list[Recipient] = []
        while len(found) < room and (end := self._next_held_end()) is not None and end <= now:
            found.append(self._at_rest.pop(heapq.heappop(self._held_ends)[1]))

        def find(following: Callable[[], Recipient | None], most: int) -> None:
            while len(found) < most and (recipient := following()) is not None:
                until = skip.get(recipient.lane_key, 0)
                if (
                    until > now
                    and not _is_overdue(recipient, overdue, received_by)
                    and not (places and places.passes(recipient.envelope.tenant, recipient.lane_key))
                ):
                    self._put_off(recipient, until)
                    continue
                found.append(recipient)
                self._new_turn = not self._new_turn

        find(lambda: self._next(now), room)
        if places is not None and places.extra:
            find(lambda: self._next_new(self._urgent, self._order, places.take), len(found) + places.extra)
        return found

    def remove(self, key: Key) -> None:
        """It does not wait any more; harmless when it does not wait."""
        for held in (self._new, self._later, self._bounces, self._at_rest):
            held.pop(key, None)

    def _next(self, now: int) -> Recipient | None:
        next_due = self._due.next_due()
        due = next_due is not None and next_due <= now
        if (self._order or self._urgent) and (self._new_turn or not due):
            self._kept = (self._kept + 1) % KEPT_FROM_URGENT
            first, second = (self._urgent, self._order) if self._kept else (self._order, self._urgent)
            return self._next_new(first, second)
        row = self._due.next(now)
        return self._later.pop(row.pop())[1] if row is not None else None

    def _next_new(
        self, first: ByTenant[_Row], second: ByTenant[_Row], take: Take | None = None
    ) -> Recipient | None:
        """Of the tenant whose turn it is, as far as `take` admits it."""
        row = first.next(take) or second.next(take)
        return self._new.pop(row.pop()) if row is not None else None

    def claim_bounces(self, room: int) -> list[Recipient]:
        """At most `room`, the longest waiting first."""
        found = list(islice(self._bounces.values(), room))
        for recipient in found:
            del self._bounces[recipient.key]
        return found

    def claim_held(self, domain: str, room: int) -> list[Recipient]:
        """At most `room` that rest for a domain, the longest resting first."""
        queue = self._held.get(domain, {})
        found: list[Recipient] = []
        while len(found) < room and (key := self._first_held(domain, queue)) is not None:
            del queue[key]
            found.append(self._at_rest.pop(key))
        return found

    def held_domains(self) -> list[str]:
        """The domains for which some rest."""
        for domain in [each for each, queue in self._held.items() if self._first_held(each, queue) is None]:
            del self._held[domain]
        return list(self._held)

    def _first_held(self, domain: str, queue: dict[Key, None]) -> Key | None:
        while queue:
            key = next(iter(queue))
            recipient = self._at_rest.get(key)
            if _rests(recipient) and recipient.lane_key == domain:
                return key
            del queue[key]
        return None

    def _next_held_end(self) -> int | None:
        while self._held_ends:
            due, key = self._held_ends[0]
            recipient = self._at_rest.get(key)
            if _rests(recipient) and recipient.due == due:
                return due
            heapq.heappop(self._held_ends)
        return None

    def claim_removed(self, room: int, now: int) -> list[Recipient]:
        """At most `room` removals whose grace is over."""
        due = (each for each in self._at_rest.values() if each.area is Area.REMOVED and each.due <= now)
        found = list(islice(due, room))
        for recipient in found:
            del self._at_rest[recipient.key]
        return found

    def pick(self, recipients: Iterable[Recipient], most: int) -> list[Recipient]:
        """The first of them that wait, at most `most`, claimed."""
        all_held = (self._new, self._later, self._bounces, self._at_rest)
        waits = (each for each in recipients if any(held.pop(each.key, None) for held in all_held))
        return list(islice(waits, most))

    def next_due(self) -> int | None:
        """When the next of incoming and deferred can be claimed; 0 = at once, None = there is none."""
        if self._order or self._urgent:
            return 0
        times = (self._due.next_due(), self._next_held_end())
        return min((time for time in times if time is not None), default=None)

    def bring_forward(self, latest: int) -> None:
        """Let no due time be later than `latest`."""
        for recipient in [each for at, each in self._later.values() if at > latest]:
            self._put_off(recipient, latest)


class _Row:
    """The keys of one tenant's new recipients; some may wait no more."""

    __slots__ = ("_keys", "_new")

    def __init__(self, new: Mapping[Key, Recipient]) -> None:
        self._new = new
        self._keys: list[Key] = []

    def push(self, key: Key) -> None:
        """One more."""
        heapq.heappush(self._keys, key)

    def pop(self) -> Key:
        """The oldest one."""
        return heapq.heappop(self._keys)

    def __bool__(self) -> bool:
        while self._keys and self._keys[0] not in self._new:
            heapq.heappop(self._keys)
        return bool(self._keys)


class _Dues:
    """The keys of one tenant's recipients by due time; some have another one now, or wait no more."""

    __slots__ = ("_heap", "_later")

    def __init__(self, later: Mapping[Key, tuple[int, Recipient]]) -> None:
        self._later = later
        self._heap: list[tuple[int, Key]] = []

    def push(self, due: int, key: Key) -> None:
        """One more."""
        heapq.heappush(self._heap, (due, key))

    def next_due(self) -> int | None:
        """When the first is due."""
        while self._heap:
            due, key = self._heap[0]
            kept = self._later.get(key)
            if kept is not None and kept[0] == due:
                return due
            heapq.heappop(self._heap)
        return None

    def pop(self) -> Key:
        """The first to be due."""
        return heapq.heappop(self._heap)[1]


def _rests(recipient: Recipient | None) -> TypeGuard[Recipient]:
    """Whether it rests for its domain."""
    return recipient is not None and recipient.area is Area.HELD and recipient.due > 0


def _is_overdue(recipient: Recipient, overdue: Overdue | None, received_by: int | None) -> bool:
    if overdue is None:
        return False
    accepted = accepted_by(recipient.spid, recipient.envelope.received)
    return (received_by is None or accepted <= received_by) and overdue(recipient)
