"""Divides the connections that `maxconnections` allows among lanes. Pure.

A destination *answers* when its transactions take no longer than `PROMPT_MS`, smoothed, and one of those
under way has ended, or began, in the last `TRIAL_MS`. All others are *in doubt*: slow, dead, or not known.

| a lane that wants one more of 20 | gets it while | otherwise |
|---|---|---|
| answers | fewer than 20 are in use | stays in line; connections of others end after their job |
| not known, its first one | and those in doubt have fewer than 15 | is held |
| else in doubt | and those in doubt have fewer than 10 | is held |

So 30 tarpits never have more than 15, and 5 are left for destinations that answer. Attempts of theirs that
last longer than `TRIAL_MS` are taken back down to 10 while new lanes wait (`overdrawn`): so each new
destination has its trial. With a single lane in the table nothing is reserved: `decisions.at_turn` does not
ask `refuses` then.

A held lane is out of line, where it costs nothing. It returns when those in doubt have fewer connections
(`release_held`), when it answers, and when one of its own has nothing to do (both `release`).

`doubted` is the sum of `connections` over lanes in doubt (`Lane.doubted`), as `judge` last found them:

| call | `connections` of the lane, `taken` | `idle` of both | `doubted` |
|---|---|---|---|
| `start` over a new connection, `opened` | + 1 | | + 1, if the lane is in doubt |
| `start` over an idle one, `left` | | - 1 | |
| `went_idle` | | + 1 | |
| `closed`, after `left` if it was idle | - 1 | | - 1, likewise |
| `judge`: the lane answers no longer | | | + its connections |
| `judge`: it answers again | | | - its connections |

Example, with 8 connections: those in doubt may have 4, with new ones 6. `slow` was slow; `a`, `b`, `c` are
new.

| what happens | calls | `slow`, `a`, `b`, `c` have | `doubted` |
|---|---|---|---|
| `slow` begins four attempts | `start` | 4, 0, 0, 0 | 4 |
| it wants to begin a fifth | `refuses`, as 4 are not below 4: `hold` | 4, 0, 0, 0 | 4 |
| `a` and `b` begin | `start` | 4, 1, 1, 0 | 6 |
| `c` wants to begin | `refuses`, as 6 are not below 6: `hold` | 4, 1, 1, 0 | 6 |
| those of `slow` last too long | `overdrawn`: 1, for `c`; 2 exceed the 4 | 4, 1, 1, 0 | 6 |
| one of them is cancelled | `closed`; `release_held`: `c`, but not `slow` | 3, 1, 1, 0 | 5 |
| `c` begins | `start` | 3, 1, 1, 1 | 6 |
| a transaction of `a` ends | `judge`: it answers | 3, 1, 1, 1 | 5 |
| `a` begins two more | `start`; nothing refuses them | 3, 3, 1, 1 | 5 |
"""

from __future__ import annotations

from itertools import islice

from mqcd.deliver.lanes.lane import Condition, Event, Lane, Position
from mqcd.deliver.lanes.turns import Turns

# As globals, see `turns`.
_OPEN, _START = Condition.OPEN, Event.START
_OUT, _HELD, _IN_LINE = Position.OUT, Position.HELD, Position.IN_LINE


def divide(most: int) -> tuple[int, int]:
    """How many of `most` connections those in doubt may have in all, and how many with those of them that are
    not known yet."""
    kept = -(-most // 4) if most > 2 else 0
    trial = max(most // 4, 1) if most > 1 else 0
    return most - kept - trial, most - kept


class Slots:
    """All connections of one table."""

    def __init__(self, turns: Turns, most: int) -> None:
        """`turns`: the lanes that stand in line."""
        self._turns = turns
        self.taken = 0
        """Open or being opened."""
        self.full = False
        """Whether these are all that there may be."""
        self.idle = 0
        """Connections that are open and without work."""
        self.doubted = 0
        """Those of `taken` that go to destinations in doubt."""
        self.crowded = False
        """Whether lanes stand in line while all are in use."""
        self._held: dict[Lane, None] = {}
        self._held_new: dict[Lane, None] = {}
        """Held lanes that are not known yet."""
        self.rebind(most)

    def rebind(self, most: int) -> None:
        """Set the number of connections; held lanes are released."""
        self._most = most
        self._doubted_most, self._new_most = divide(most)
        self._take(0)
        for lane in (*self._held, *self._held_new):
            self.release(lane)

    def opened(self, lane: Lane) -> None:
        """Count one more connection of a lane."""
        lane.connections += 1
        self._take(1)
        self.doubted += lane.doubted

    def closed(self, lane: Lane) -> None:
        """Count one less connection of a lane."""
        lane.connections -= 1
        self._take(-1)
        self.doubted -= lane.doubted

    def _take(self, more: int) -> None:
        self.taken += more
        self.full = 0 < self._most <= self.taken

    def start(self, lane: Lane, now: int) -> bool:
        """A lane has work for a connection; whether that is an idle one. If not it has one more."""
        if not lane.idle:
            self.judge(lane, now)
        if lane.condition is not _OPEN:
            lane.on(_START)
        if lane.connections == lane.idle:
            lane.busy_since = now
        if not lane.idle:
            self.opened(lane)
            return False
        self.left(lane)
        return True

    def went_idle(self, lane: Lane) -> None:
        """Mark a connection of a lane idle."""
        if lane.position is _HELD:
            # Its own mail may use this connection, even while lanes are held back.
            self.release(lane)
        lane.idle += 1
        self.idle += 1

    def left(self, lane: Lane) -> None:
        """Mark an idle connection of a lane busy."""
        lane.idle -= 1
        self.idle -= 1

    def judge(self, lane: Lane, now: int) -> None:
        """Check whether a lane answers; one that does is held no longer."""
        doubted = not lane.answers(now)
        if doubted is not lane.doubted:
            lane.doubted = doubted
            self.doubted += lane.connections if doubted else -lane.connections
            if lane.position is _HELD:
                self.release(lane)

    def refuses(self, lane: Lane, now: int) -> bool:
        """Whether a lane may not have one more, though not all are in use."""
        if not self._most or lane.answers(now):
            return False
        # It is in doubt now; if it was not at the last look, `doubted` will count its connections, too.
        doubted = self.doubted + (0 if lane.doubted else lane.connections)
        if doubted < self._doubted_most:
            return False
        return not _is_new(lane) or doubted >= self._new_most

    def hold(self, lane: Lane, now: int) -> None:
        """Hold a lane back that may not have one more, until it is released."""
        self.judge(lane, now)
        (self._held_new if _is_new(lane) else self._held)[lane] = None
        lane.position = _HELD

    def release_held(self) -> None:
        """Release as many held lanes as there may be connections for now."""
        for held, most in ((self._held_new, self._new_most), (self._held, self._doubted_most)):
            for lane in list(islice(held, max(most - self.doubted, 0))):
                self.release(lane)

    def release(self, lane: Lane) -> None:
        """Return a held lane to the line."""
        lane.position = _OUT
        self._held.pop(lane, None)
        self._held_new.pop(lane, None)
        self._turns.push(lane)

    @property
    def wanted(self) -> bool:
        """Whether some lane stands in line for one, idle or new, or is held back until there is room: what
        ends may have made some."""
        return bool(self._turns or self._held or self._held_new)

    @property
    def scarce(self) -> bool:
        """Whether lanes wait for a connection that `maxconnections` does not allow."""
        return self.crowded or bool(self._held or self._held_new)

    def others_wait(self, lane: Lane) -> bool:
        """Whether other lanes wait for a connection that this one could give up."""
        if self.crowded and self._turns.in_line > (lane.position is _IN_LINE):
            return True
        return lane.doubted and len(self._held) + len(self._held_new) > (lane.position is _HELD)

    @property
    def overdrawn(self) -> int:
        """The number of long attempts to cancel at destinations in doubt: as many as exceed their half, and
        as lanes wait for them."""
        over = self.doubted - self._doubted_most if self._most else 0
        if over <= 0:
            return 0
        return min(over, len(self._held_new) + (self._turns.in_line if self.full else 0))


def _is_new(lane: Lane) -> bool:
    """Whether it is unknown and has no connection that will settle that."""
    return not lane.pace.recent and not lane.connections
