"""What the loop of delivery does next, and when it wakes: decisions on the active set and the time. Pure.

The loop sleeps until something wakes it, gives back what holds a full active set, claims, starts what the
lanes allow, and sleeps again.

| what happens | next claim | wakes the loop |
|---|---|---|
| new mail in the store (`new_mail`) | at once | if there is room for it |
| settings, rules or what is suspended change (`changed`) | at once | always, by the caller |
| a claim gave something and more is due (`claimed`) | at once | always |
| a claim gave nothing though mail is due (`claimed`) | in EMPTY_CLAIM_MS | then |
| the loop failed (`failed`) | in EMPTY_CLAIM_MS | then |
| recipients leave the active set (`left`) | | if they kept other mail out of it |

A claim beyond the full active set, for tenants that hold little of it, has times of its own: after one that
gave nothing STUCK_MS pass, unless a tenant was refused or new mail comes.

Times are monotonic ms.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqcd.deliver.lanes.decisions import STUCK_MS

MAX_SLEEP_MS = 3_600_000
"""The longest sleep; the wall clock may be set meanwhile."""
EMPTY_CLAIM_MS = 1000
"""How long no claim is made after one that returned nothing although mail was due."""


@dataclass(slots=True, eq=False, repr=False)
class Plan:
    """One per deliverer. `room`: the number of recipients that may be claimed now, 0 = the active set is
    full. `several`: tenants share it."""

    _claim_at: int = 0
    _extra_at: int = 0
    """When a claim beyond the full active set may give something; 0 = it may by any change."""
    _relieve_at: int = 0
    _passed_over: bool = False
    """Whether the last claim passed over domains."""

    # ------------------------------------------------------------ what to do

    def relieves(self, room: int, now: int) -> bool:
        """Whether lanes without progress are to give up room now; once every STUCK_MS."""
        if room or now < self._relieve_at:
            return False
        self._relieve_at = now + STUCK_MS
        return True

    def claims(self, room: int, now: int) -> bool:
        """Whether to claim now."""
        return now >= (self._claim_at if room else self._extra_at)

    def sleep(self, now: int, due_in: int | None, *others: int | None) -> int:
        """Time until the next look, ms. `due_in`: until mail of the store is due; `others`: until other parts
        have something to do (None = they have not)."""
        times = [each for each in others if each is not None]
        if due_in is not None:
            times.append(max(due_in, self._claim_at - now, 0))
        return min(times, default=MAX_SLEEP_MS)

    # ------------------------------------------------------------ what has happened

    def claiming(self, passed_over: bool) -> None:
        """A claim begins, which passes over some domains or not."""
        self._passed_over = passed_over

    def claimed(self, room: int, now: int, *, some: bool, due: bool, refused: bool) -> bool:
        """A claim has ended, begun at `now` for `room`, and gave `some`; more is `due`. `refused`: a tenant
        was, for want of a place. Returns whether to look again at once."""
        if not room:
            self._extra_at = 0 if some or refused else now + STUCK_MS
            return some
        if due and not some:
            self._claim_at = now + EMPTY_CLAIM_MS
        return due and some

    def failed(self, now: int) -> int:
        """The loop failed; time until its next turn, ms."""
        self._claim_at = now + EMPTY_CLAIM_MS
        return EMPTY_CLAIM_MS

    def changed(self) -> None:
        """A claim may give something again."""
        self._claim_at = 0

    def new_mail(self, room: int, several: bool) -> bool:
        """The store has new mail; returns whether to wake."""
        self._claim_at = 0
        if room:
            return True
        if several:
            self._extra_at = 0
        return several

    def kept_out(self, room: int, passes_over: bool) -> bool:
        """Whether mail is kept out of the active set, which has `room`: by lanes that have claims pass over
        their domains, by the last claim, or since the set is full."""
        return self._passed_over or passes_over or not room

    def left(self, kept_out: bool, room: int, several: bool) -> bool:
        """Recipients have left; mail was `kept_out` before. Returns whether to wake for a claim."""
        return (kept_out and room > 0) or (several and not self._extra_at)
