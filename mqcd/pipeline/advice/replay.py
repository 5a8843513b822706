"""What another retry schedule would have done in outages that were recorded. Pure, and without Spark.

The model is a lane of the server's (docs/scheduling.md) and one thing that happens to it: an attempt fails
if and only if it begins in one of the outages of its site. From the first such failure on the site is known
to be dead: no recipient is tried but one as its probe, after a minute, then each time after twice as
long, never longer than the first retry delay. A recipient that is tried in vain waits for the next probe, at
most to the age limit, and may be it again; the others wait untried, and are given up at their age limit by
the failure of the last probe. A probe that gets through lets all that wait go.

What else may meet mail (greylisting, limits, full mailboxes) and how long it takes to send a backlog are not
in the model.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Sequence

from mqcd.core.queueing.schedule import LAST_CHANCE_MS, RetrySchedule
from mqcd.core.value import value

TOLERANCE = 0.1
"""Share by which attempts of the replayed schedule in force may differ from those recorded: jitter, attempts
whose outcome a crash hid, and outage ends that are only known to lie between two attempts."""
FIRST_PROBE_MS = 60_000
"""From the failure that shows a destination to be dead to its first probe, as in the server."""
AT_ONCE = 5
"""Attempts that a lane makes at once before it has heard of the first one, as in the server."""


@value
class Outage:
    """A time in which attempts fail. Times in ms."""

    begin: int
    end: int
    took: int = 0
    """How long an attempt takes to fail."""


class Mail:
    """The recipients of a lane that outages met, as columns: a large site has hundreds of thousands."""

    def __init__(self) -> None:
        self.spid, self.qid = array("Q"), array("l")
        self.first, self.limit, self.tried = array("q"), array("q"), array("l")

    def add(self, *, spid: int, qid: int, first: int, limit: int, tried: int = 0) -> None:
        """One more, not before the others: when it came to be tried first, when it reaches its age
        limit (ms), and how many attempts were made before that."""
        self.spid.append(spid)
        self.qid.append(qid)
        self.first.append(first)
        self.limit.append(limit)
        self.tried.append(tried)

    def __len__(self) -> int:
        return len(self.first)


@value
class Outcome:
    """What the model says became of them."""

    attempts: int
    through: int
    """Recipients that got through while the record lasts."""
    wait: int
    """From first attempts until they got through, were given up or the record ended; ms, of all together."""


def waited(first: int, limit: int, end: int) -> int:
    """How long a recipient waited that never got through, ms; the record ends at `end`."""
    return max(min(limit, end) - first, 0)


def replay(mail: Mail, outages: Sequence[Outage], schedule: RetrySchedule, end: int) -> Outcome:
    """Try all of them by a schedule up to `end`; outages in order, apart."""
    return _Lane(mail, outages, schedule, end).run()


class _Lane:
    def __init__(self, mail: Mail, outages: Sequence[Outage], schedule: RetrySchedule, end: int) -> None:
        self._mail, self._schedule, self._end = mail, schedule, end
        self._outages = outages
        self._begins = [each.begin for each in outages]
        self._next = 0
        """The first recipient that has not come yet."""
        self._later: list[tuple[int, int, int]] = []
        """Recipients that were tried in vain: when due again, number, attempts so far."""
        self._dead = False
        self._free = 0
        """No recipient is tried before this time; the one that is then is the probe of a dead site."""
        self._delay = 0
        """Time between the last two probes."""
        self._attempts = self._through = 0
        self._wait = sum(map(waited, mail.first, mail.limit, (end for _ in range(len(mail)))))

    def run(self) -> Outcome:
        while (due := self._due()) is not None:
            at = max(due, self._free)
            if at > self._end:
                break
            number, tries = self._pop()
            over = due < at and self._mail.limit[number] < at
            # What waits behind a probe is judged by its failure; a single one is the probe.
            if over and not (self._dead and not self._others_by(at)):
                continue
            self._try(number, tries, at)
        return Outcome(attempts=self._attempts, through=self._through, wait=self._wait)

    def _try(self, number: int, tries: int, at: int) -> None:
        """An attempt while no other is under way."""
        outage = self._outage(at)
        if outage is None:
            self._deliver(number, at)
            self._dead, self._delay = False, 0
            # Recipients that waited for this one follow it.
            self._free = at
            return
        answered = at + outage.took
        self._delay = min(self._delay * 2 or FIRST_PROBE_MS, self._schedule.delays[0])
        self._free = answered + self._delay
        self._fail(number, tries, answered)
        if not self._dead:
            self._fail_others(answered)
        self._dead = True

    def _fail_others(self, answered: int) -> None:
        """The recipients that come while the first attempt has not failed yet."""
        for _ in range(AT_ONCE - 1):
            due = self._due()
            if due is None or due >= min(answered, self._end):
                return
            number, tries = self._pop()
            self._fail(number, tries, answered)

    def _deliver(self, number: int, at: int) -> None:
        mail = self._mail
        self._attempts += 1
        self._through += 1
        first = mail.first[number]
        self._wait += at - first - waited(first, mail.limit[number], self._end)

    def _fail(self, number: int, tries: int, answered: int) -> None:
        mail = self._mail
        self._attempts += 1
        limit = mail.limit[number]
        if answered < limit:
            delay = self._schedule.delay_of(mail.spid[number], mail.qid[number], tries + 1)
            due = min(answered + delay, self._free, max(limit, answered + LAST_CHANCE_MS))
            heapq.heappush(self._later, (due, number, tries + 1))

    # ------------------------------------------------------------ which one is next

    def _due(self) -> int | None:
        """When the next one is to be tried, were it not for a dead site; None: none is left."""
        came = self._mail.first[self._next] if self._next < len(self._mail) else None
        later = self._later[0][0] if self._later else None
        if came is None or later is None:
            return later if came is None else came
        return min(came, later)

    def _pop(self) -> tuple[int, int]:
        """Take that one: its number, and attempts so far."""
        mail, number = self._mail, self._next
        if self._later and (number == len(mail) or self._later[0][0] < mail.first[number]):
            _, number, tries = heapq.heappop(self._later)
            return number, tries
        self._next += 1
        return number, mail.tried[number]

    def _others_by(self, at: int) -> bool:
        due = self._due()
        return due is not None and due <= at

    def _outage(self, at: int) -> Outage | None:
        place = bisect_right(self._begins, at) - 1
        if place < 0 or at >= self._outages[place].end:
            return None
        return self._outages[place]
