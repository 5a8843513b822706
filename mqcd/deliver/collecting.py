"""Mail that a user collects over their own connection (ATRN, RFC 2645): the roles are reversed.

This server speaks SMTP as the client there.

Guarantees
* Only mail that rests for the domains asked for goes over the connection, message by message, with the usual
  verdicts. What is refused for now, and what the session does not take, stays held.
* A session does not end because the store cannot give out at once what rests, or cannot record: it waits,
  PATIENCE_MS at most.
* No recipient is tried twice in a session, and none while delivery is paused. Standing rules count, with the
  user's connection as the destination; one that slows has no effect. What an operator or a rule does to mail
  that the session has claimed reaches the messages that are not begun.
* A session that is cancelled gives back what it has not tried; a message whose end is out and unanswered is
  left begun, and the store's next start counts it as outcome unknown.
* So does one that an internal error ends, but that message is put off as possibly delivered. An error about
  one recipient leaves that one held, and ends no session.

Settings read: deliver maxrecips, client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from mqcd.config.settings import TlsPolicy
from mqcd.core.model import Recipient, Settlement
from mqcd.core.ports import Connection, QueueStore
from mqcd.core.queueing.calls import Wanted
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.rules import RuleAction
from mqcd.deliver.connection.attempt import End, transact
from mqcd.deliver.connection.link import Link
from mqcd.deliver.connection.timers import Sweep
from mqcd.deliver.connection.traced import link_of
from mqcd.deliver.lanes.entering import Entering
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.reaching import Reaching
from mqcd.deliver.recording import Recorder
from mqcd.deliver.routing.policy import Hop, Policy, hop
from mqcd.deliver.routing.routing import Destination
from mqcd.deliver.settling import Settling
from mqcd.deliver.smtp.exchange import Options
from mqcd.deliver.smtp.states import State
from mqcd.deliver.standing import KeptBack, Standing
from mqcd.deliver.terms import Terms

AT_ONCE = 100
"""Recipients that a session has in flight."""
PATIENCE_MS = 30_000
"""How long a session waits for mail that the store moves, or is too short of room to give out, and for a
store that does not record."""
PAUSE_MS = 50
"""Time between two questions for it."""
_LEFT = frozenset({End.STALE, End.STORE, End.CONTENT})
"""Ends of a transaction that leave its recipients untried."""

_log = logging.getLogger("mqcd.deliver")


@dataclass(eq=False, repr=False)
class Collecting:
    """One per deliverer."""

    _terms: Terms
    _entering: Entering
    _store: QueueStore
    _recorder: Recorder
    _settling: Settling
    _reaching: Reaching
    _standing: Standing
    _sweep: Sweep

    def waiting(self, wanted: Wanted) -> bool:
        """Whether mail rests for such a domain. Raises StoreUnavailable."""
        return any(map(wanted, self._store.held_domains()))

    async def collect(
        self,
        connection: Connection,
        wanted: Wanted,
        user: str,
        session: str,
        stops: Callable[[], bool],
        *,
        address: str = "",
        ends: bool = True,
    ) -> bool:
        """Send what rests for such domains over a connection of `user`, and end it; `stops` says that no
        further message is to be begun. `session` names it in the log, `address` is the user's. Without `ends`
        it is left open; returns whether it can then be used again. Raises StoreUnavailable."""
        client = self._terms.settings.client
        address = address or connection.remote_addr
        names = (user, address, session, f"atrn:{user}")
        link = link_of(self._terms, client, self._options(), *names)
        link.adopt(connection)
        self._sweep.add(link)
        good = False
        try:
            if await link.greet() is State.READY:
                await self._send(link, self._hop(user, address), wanted, stops)
            good = link.smtp.state is State.READY
            if ends:
                await link.quit()
            return good
        finally:
            if ends or not good:
                link.close()
            self._sweep.discard(link)
            _log.info("%s: %d messages collected", user, link.transactions, extra={"session": session})

    def _options(self) -> Options:
        client = self._terms.settings.client
        return Options(
            hello=client.announcehost,
            maxpipeline=client.maxpipeline,
            chunking=client.ext_chunking,
            # The connection is as the customer has made it.
            tls=TlsPolicy.NONE,
        )

    def _hop(self, user: str, address: str) -> Hop:
        destination = Destination(name=f"atrn:{user}", hosts=((address,),), port=0)
        helo = self._terms.settings.client.announcehost
        policy = Policy(schedule=self._terms.schedule, helo=helo, tls=TlsPolicy.NONE, connections=1)
        # Not sole: other mail of its domains goes elsewhere.
        return hop(destination, policy, sole=False)

    async def _send(self, link: Link, hop: Hop, wanted: Wanted, stops: Callable[[], bool]) -> None:
        seen: set[tuple[int, int]] = set()
        over: set[str] = set()
        clock = self._terms.clock
        since = clock.monotonic()
        while not (stops() or self._terms.begins_nothing):
            claimed: Sequence[Recipient] = ()
            if not (self._recorder.crowded or self._recorder.paused):
                domains = [each for each in self._store.held_domains() if wanted(each) and each not in over]
                if not domains:
                    return
                claimed = await self._claim(domains, seen, over)
            if claimed:
                fresh = self._fresh(claimed, hop, seen)
                jobs = list(_jobs(fresh, hop, self._terms.settings.maxrecips))
                if jobs and not await self._send_some(link, jobs, seen, stops):
                    return
                since = clock.monotonic()
            elif clock.monotonic() - since < PATIENCE_MS:
                await clock.sleep(PAUSE_MS)
            else:
                return

    async def _claim(
        self, domains: Sequence[str], seen: set[tuple[int, int]], over: set[str]
    ) -> Sequence[Recipient]:
        """The next recipients. What the session leaves at rest is `seen`; a domain that gives no
        others is `over`. Raises StoreUnavailable."""
        found: list[Recipient] = []
        try:
            for domain in domains:
                if len(found) >= AT_ONCE:
                    break
                claimed = await self._store.claim_held(domain, AT_ONCE - len(found))
                self._entering.enter(claimed)
                found += claimed
                if claimed and all(each.key in seen for each in claimed):
                    over.add(domain)
        except BaseException:
            self._settling.park(found)
            raise
        return found

    def _fresh(self, found: Sequence[Recipient], hop: Hop, seen: set[tuple[int, int]]) -> list[Recipient]:
        """Those that may be tried; the others follow an operator or a rule, or rest again."""
        now = self._terms.clock.now()
        fresh: list[Recipient] = []
        left: list[Recipient] = []
        kept = KeptBack()
        for each in found:
            try:
                if (amended := self._reaching.take_amendment(each)) is not None:
                    kept.settlements.append(Settlement(recipient=each, verdict=amended))
                # A client may have wanted it to be sent later (RFC 4865).
                elif self._terms.begins_nothing or each.key in seen or each.envelope.release > now:
                    left.append(each)
                elif (rule := self._standing.find(each, hop)) is None or rule.action is RuleAction.SLOW:
                    fresh.append(each)
                else:
                    self._standing.apply(rule, each, hop, self._terms.schedule.longest, kept)
            except Exception:
                # The others go on: what an operator has made of them is known here alone by now.
                name = format_spid(each.spid)
                _log.exception("internal error: %s is not collected", each.address, extra={"spid": name})
                left.append(each)
        # Without the time until which a rule counts: the mail waits for its user, not for a turn.
        left += [each for some in kept.parked.values() for each in some]
        seen.update(each.key for each in left)
        self._settling.keep_back(KeptBack(settlements=kept.settlements))
        self._settling.park(left)
        return fresh

    async def _send_some(
        self, link: Link, jobs: list[Job], seen: set[tuple[int, int]], stops: Callable[[], bool]
    ) -> bool:
        """Send messages; whether the session may go on."""
        jobs.reverse()
        end = End.KEPT
        try:
            while jobs and end is End.KEPT and not (stops() or self._terms.begins_nothing):
                job, clock = jobs[-1], self._terms.clock
                if self._standing.stands or self._reaching.awaited:
                    # More may stand than when they were claimed.
                    job.recipients = self._fresh(job.recipients, job.hop, seen)
                if not job.recipients:
                    jobs.pop()
                    continue
                end = await transact(
                    self._store, clock, self._settling, link, job, clock.monotonic(), last=False
                )
                if end is End.CONTENT:
                    # After the others: the next session must not meet it first again.
                    jobs.insert(0, jobs.pop())
                if end in _LEFT:
                    break
                jobs.pop()
                outcomes = zip(job.recipients, link.smtp.outcomes, strict=True)
                seen.update(each.key for each, outcome in outcomes if outcome.result.puts_off)
            return end is End.KEPT
        except BaseException as error:
            if link.content_ended:
                job = jobs.pop()
                if isinstance(error, Exception):
                    self._settling.own_fault(job, possibly_delivered=True)
            raise
        finally:
            self._settling.park([each for job in reversed(jobs) for each in job.recipients])


def _jobs(recipients: Iterable[Recipient], hop: Hop, most: int) -> Iterable[Job]:
    """One for each message, or several where it has more than `most` recipients (0 = any number)."""
    for _, group in groupby(recipients, key=lambda each: each.spid):
        together = list(group)
        size = most or len(together)
        for start in range(0, len(together), size):
            yield Job(hop, together[0].envelope, together[start : start + size], since=0)
