"""How long mail stays outside the active set: for a suspended destination, or one beyond its share. Pure.

A suspended destination keeps one recipient as its probe. The first probe comes after the policy's probe
interval, else `FIRST_PROBE_MS`, each further one after twice the time, none later than the first retry delay.
The others come back soon after the probe has begun, and at growing intervals while it lasts.
"""

from __future__ import annotations

from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.deliver.routing.policy import Policy

FIRST_PROBE_MS = 60_000
PROBE_GRACE_MS = 1000
"""Time after the start of a probe at which its destination's other recipients come back; up to ten times as
long where the last probe was slow to fail."""
MOST_GRACE_MS = 60_000
MIN_REST_MS = 100
MAX_REST_MS = 30_000
LONG_REST_MS = 300_000
"""The longest rest of a lane of which no transaction ended since its last one began."""


@value(kw_only=False)
class Suspension:
    """Why a destination is suspended, and when it is probed. The default: it is not."""

    reply: Reply | None = None
    """The failure of the last attempt."""
    until: int = 0
    """When the probe may start."""
    delay: int = 0
    """Time between the last two probes."""
    failing: int = 0
    """How long the last probe took to fail, ms."""

    def failed(self, reply: Reply, policy: Policy, now: int) -> Suspension:
        """The suspension after a failure."""
        failing = 0 if self.reply is None else max(now - self.until, 0)
        if now < self.until:
            return Suspension(reply, self.until, self.delay, failing)
        delay = min(self.delay * 2 or policy.probe_interval or FIRST_PROBE_MS, policy.schedule.delays[0])
        return Suspension(reply, now + delay, delay, failing)

    def hurried(self, now: int) -> Suspension:
        """The next probe may start at once; if it fails, later ones come as after the first failure."""
        return Suspension(self.reply, now, 0, self.failing) if self.until > now else self

    def wait(self, now: int) -> int:
        """Time that recipients other than the probe wait outside, ms."""
        late = now - self.until
        grace = min(max(self.failing // 6, PROBE_GRACE_MS), 10 * PROBE_GRACE_MS)
        return max(-late, 0) + min(max(4 * late, grace), MOST_GRACE_MS)


NOT_SUSPENDED = Suspension()


@value(kw_only=False)
class Share:
    """How many recipients a lane may hold that is new or makes no progress, and the rest of its domains.

    | | share | rest |
    |---|---|---|
    | `rest_begun` | stays | begins |
    | `resting` | stays | goes on; where it has ended, the next one begins, twice as long |
    | `lifted`; `eased` | ends; may end | goes on |

    It ends by itself, at `until`, or with NO_SHARE.
    """

    most: int = 0
    """0 = no limit."""
    rest: int = 0
    """Length of the last rest of its domains, ms."""
    until: int = 0
    """Until when they are passed over."""

    def rest_begun(self, rest: int, now: int, moved: int) -> Share:
        """The share with a rest of its domains begun, of about `rest` ms; it may be longer where no
        transaction ended (`moved`) since the last one began."""
        longest = MAX_REST_MS if moved > self.until - self.rest else LONG_REST_MS
        rest = min(max(rest, MIN_REST_MS), longest)
        return Share(self.most, rest, now + rest)

    def resting(self, now: int, moved: int) -> Share:
        """The share with a rest under way: its own, or where that has ended the next one, twice as long."""
        return self if self.until > now else self.rest_begun(self.rest * 2, now, moved)

    def lifted(self) -> Share:
        """No share any more; a rest under way goes on."""
        return Share(0, self.rest, self.until)

    def eased(self, waiting: int, *, new: bool) -> Share:
        """The share of a lane in which so many wait: it ends when half of it is used up, unless the lane is
        new. A rest under way goes on."""
        return self.lifted() if waiting * 2 < self.most and not new else self


NO_SHARE = Share()
