"""Mail enters the active set and its lane, or starts at once, and is counted until it has left. Pure.

`Entering` alone changes what counts recipients in flight: `active`, `shares`, and `coming` of a lane.

| recipients | call | `active`, `shares` | `coming` | then |
|---|---|---|---|---|
| are claimed | `enter` | more | | `add`, at once or when their route is known |
| are new, and a connection of their lane is idle | `start_new` | more | | they go over it |
| are new, and wait for one as soon as their message is durable | `start_new` | more | more | |
| their message is durable | `came` | | fewer | `add` |
| their message is not accepted | `undo_start` | fewer | fewer, if they were to wait | |
| are settled or parked | `leave` | fewer | | |

So `coming` counts only recipients that `active` counts too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mqcd.core.model import Recipient
from mqcd.deliver.lanes.decisions import holds_back, is_free
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Bounds, Condition, Give, Lane, Start, Why
from mqcd.deliver.lanes.outside import Share
from mqcd.deliver.lanes.passing import Passing, Skip
from mqcd.deliver.lanes.slots import Slots
from mqcd.deliver.lanes.tenants import Places, Shares
from mqcd.deliver.lanes.throttling import Throttle
from mqcd.deliver.lanes.turns import Turns
from mqcd.deliver.routing.policy import Hop


@dataclass(slots=True, eq=False, repr=False)
class Entering:
    """The way into the lanes of one table, and the count of what is in flight."""

    bounds: Bounds
    """Those in effect; the table changes them."""
    _lanes: dict[str, Lane]
    """The table's; those of new hops are added."""
    _turns: Turns
    _throttle: Throttle
    _passing: Passing
    _slots: Slots
    _count: int = 0
    """Jobs made so far."""
    active: int = 0
    """Recipients claimed, or started as new, and neither settled nor parked."""
    shares: Shares = field(default_factory=Shares)
    """What each tenant has of these."""
    _waited: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    """By key of a recipient that is to be placed anew: the lane that it was in, and since when."""

    # ------------------------------------------------------------ the active set

    def room(self) -> int:
        """The number of recipients to claim now: none until a tenth of the active set is free."""
        room = self.bounds.queuecache - self.active
        return room if room * 10 >= self.bounds.queuecache else 0

    def places(self, skip: Skip) -> Places:
        """What a claim that passes over the domains in `skip` may give to which tenants beyond its room."""
        most = self.bounds.queuecache
        return Places(self.shares, self.active, most, full=not self.room(), takes_few=skip.takes_few)

    def enter(self, recipients: Sequence[Recipient]) -> None:
        """They have been claimed."""
        self.active += len(recipients)
        self.shares.enter(recipients)

    def leave(self, recipients: Sequence[Recipient]) -> None:
        """They have been settled or parked."""
        self.active -= len(recipients)
        self.shares.leave(recipients)
        if self._waited:
            for each in recipients:
                self._waited.pop(each.key, None)

    def remember(self, job: Job) -> None:
        """Its recipients are placed anew: one that comes back into the same lane has waited there since it
        first came."""
        self._waited.update((each.key, (job.hop.key, job.since)) for each in job.recipients)

    # ------------------------------------------------------------ into a lane, or over a connection

    def add(
        self, recipient: Recipient, domain: str, hop: Hop, now: int, content: bytes | None = None
    ) -> Give | None:
        """Put a claimed recipient into its lane; a Give when it has to wait outside."""
        lane = self._lanes.get(hop.key)
        if lane is None or lane.hop is not hop:
            lane = self._lane_by(hop, lane, now)
        if hop.sole:
            self._passing.belongs(domain, lane)
        job = Job(hop, recipient.envelope, [recipient], self._since(recipient, hop, now), content)
        if not is_free(lane, self._throttle.senders):
            job.limit = self._throttle.of_sender(recipient)
            most = self.bounds.queuecache
            job.few = self.shares.is_few(recipient, lane.queue.few, self.active, most)
            if give := self._keep_outside(lane, job, now):
                return give
        self._line_up(lane, job, now)
        if lane.idle or lane.connections < lane.most_connections(self.bounds.queuecache, now):
            self._turns.push(lane)
        return None

    def start_new(self, recipients: Sequence[Recipient], hop: Hop, now: int) -> Start | None:
        """Start a job for new recipients of one message over an idle connection of their lane; without
        `reuse` they wait there for one. None: no room, or something holds them. They count as claimed."""
        lane = self._lanes.get(hop.key)
        if lane is None or not lane.hop.fits(hop) or not is_free(lane, self._throttle.senders):
            return None
        free = lane.idle > 0 and not lane.queue.waiting
        if not free and not lane.has_room(len(recipients)):
            return None
        room = self.room()
        if len(recipients) > min(room, self.bounds.maxrecips or room):
            return None
        if hop.sole:
            self._passing.belongs(recipients[0].domain, lane)
        self.enter(recipients)
        self._count += 1
        order = (lane.queue.turns.now, self._count)
        job = Job(hop, recipients[0].envelope, list(recipients), now, order=order)
        if not free:
            lane.coming += len(recipients)
        return Start(lane=lane, job=job, reuse=free and self._slots.start(lane, now))

    def came(self, start: Start) -> None:
        """The recipients of a job of `start_new` without `reuse` take their place in line: the caller adds or
        parks them."""
        start.lane.coming -= len(start.job.recipients)

    def undo_start(self, start: Start) -> None:
        """A job of `start_new` will not come; the connection that it was to use is the caller's."""
        self.leave(start.job.recipients)
        if not start.reuse:
            start.lane.coming -= len(start.job.recipients)

    # ------------------------------------------------------------ inside

    def _since(self, recipient: Recipient, hop: Hop, now: int) -> int:
        """Since when a recipient that comes in waits in the lane of this hop."""
        lane, since = self._waited.pop(recipient.key, ("", now)) if self._waited else ("", now)
        return since if lane == hop.key else now

    def _lane_by(self, hop: Hop, lane: Lane | None, now: int) -> Lane:
        """A new lane, or one that goes by another policy from now on."""
        if lane is None:
            lane = self._lanes[hop.key] = Lane(hop, share=Share(self._new_share))
            if zone := hop.policy.zone:
                lane.queue.turns = self._turns.zone(zone).turns
            self._throttle.limit_lane(lane, now)
            return lane
        policy, lane.hop = lane.hop.policy, hop
        if policy is not hop.policy:
            self._throttle.limit_lane(lane, now)
        return lane

    @property
    def _new_share(self) -> int:
        """The most that a lane may hold of which no transaction has ended."""
        return max(self.bounds.queuecache // 4, 1)

    def _keep_outside(self, lane: Lane, job: Job, now: int) -> Give | None:
        """A Give where something holds the recipient back; its lane or its rate notes when it returns."""
        most = self._new_share
        why = holds_back(lane, job, now, most)
        # Whether a share is used up by half is seen when mail comes.
        lane.share = lane.share.eased(lane.queue.waiting, new=lane.condition is Condition.NEW)
        if why is None:
            return None
        if why is Why.DEAD:
            after = lane.until_probed(now)
        elif why is Why.SHARE:
            lane.share = lane.share.resting(now, lane.moved)
            after = lane.share.until - now
            self._passing.add(lane)
        else:
            after = max(limit.book(now, most, job.been_outside) for limit in lane.queue.limits_of(job))
        return Give(recipients=job.recipients, after=after, why=why, lane=lane)

    def _line_up(self, lane: Lane, job: Job, now: int) -> None:
        """Its recipient goes to the job of its message that has room, else in this one to its turn. A job has
        room for any number where `maxrecips` is 0: no more than `queuecache` are there."""
        queue, [recipient] = lane.queue, job.recipients
        most = self.bounds.maxrecips or self.bounds.queuecache
        several = recipient.envelope.spid & 1
        if several and queue.join(recipient, job.hop, most):
            return
        self._count += 1
        if not queue.waiting:
            lane.moved = max(lane.moved, now)
        job.order = queue.turns.next(recipient.envelope.tenant), self._count
        queue.append(job, bool(several) and most != 1 and not lane.suspended)
