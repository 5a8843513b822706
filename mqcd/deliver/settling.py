"""Makes verdicts of outcomes, with the reports that they cause, and hands them to the store.

Guarantees: each recipient that is handed in goes on to `recording`, settled or parked, and no call raises
after it has handed one on. Where an internal error leaves one without a verdict, the others are settled, and
it is, too (`verdicts.after_fault`): what was tried must back off and expire, and what was delivered must not
be sent again. Of what lanes give back untried all is then parked. A delay warning is recorded together with
its report.

The store records the begin of an attempt before its verdict. Where it has not yet, `begin` names the
destination, and `recording` hands over both in one turn:

| entry | called by | `begin` | goes on to |
|---|---|---|---|
| `settle_each` | `transact` | none: `transact` has awaited it | `record`; `_report_deliveries` |
| `own_fault` | workers, `Collecting` | | `settle_job` |
| `settle_job` | workers | unless `Job.begun` | `settle_all` |
| `settle_all` | `settle_job`, `Placing`, `give` | by the caller | `record` |
| `record` | the above, `_warn`, `Held` | by the caller | the recorder; `report` for delay warnings |
| `report` | `record`, `_report_deliveries` | by the caller | the recorder, with reports |
| `give` | all callers of the lane table | always: none was begun | `settle_all`, `_warn`; or parked |
| `keep_back` | `Placing`, `Collecting` | none: it is no attempt | the recorder; or parked |
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import TypeVar

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Attempt, Deferred, Delivered, Phase, PutOff, Recipient, Settlement, Submission
from mqcd.core.ports import Notifier, QueueStore
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.spid import format_spid
from mqcd.core.smtp.dsn import notify_of
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Give
from mqcd.deliver.recording import Recorder
from mqcd.deliver.replying import Effect, by_rules
from mqcd.deliver.routing.policy import Hop
from mqcd.deliver.smtp.exchange import Outcome
from mqcd.deliver.standing import KeptBack
from mqcd.deliver.terms import Terms
from mqcd.deliver.verdicts import INTERNAL, Judged, after_fault, failure, part, verdict_on

MOST_ON_ONE = 100
"""Most recipients on one report: it and their verdicts are one record of bounded size."""

Reporting = Callable[[Notifier, Sequence[Settlement]], Awaitable[Sequence[Submission]]]
"""Which of the notifier's reports it is."""
Heard = TypeVar("Heard")

_log = logging.getLogger("mqcd.deliver")


def _ignore(_: object) -> None:
    """No other part wants to hear of it."""


@dataclass(eq=False, repr=False)
class Settling:
    """One per deliverer. `notifier` makes reports on delay, and on success where the next hop will not."""

    _terms: Terms
    _store: QueueStore
    _recorder: Recorder
    notifier: Notifier | None
    on_verdicts: Callable[[Sequence[Settlement]], None] = _ignore
    """Hears of verdicts before they are recorded."""
    on_effect: Callable[[Effect], None] = _ignore
    """Hears what replies mean for a destination."""

    def judge(self, outcome: Outcome, hop: Hop, domain: str) -> Outcome:
        """The outcome of an attempt by the reply rules."""
        outcome, effect = by_rules(self._terms.settings.rules, outcome, domain, hop.destination)
        if effect is not None:
            _tell(self.on_effect, effect)
        return outcome

    def park(self, recipients: Sequence[Recipient], after: int = 0) -> None:
        """Give recipients back without a verdict, due again in `after` ms."""
        self._recorder.park(recipients, self._terms.clock.now() + after if after else 0)

    def keep_back(self, kept: KeptBack) -> None:
        """Have recorded what standing rules make of recipients."""
        if kept.settlements:
            self._recorder.settle(kept.settlements)
        for until, recipients in kept.parked.items():
            self._recorder.park(recipients, until)

    def unavailable(self, error: StoreUnavailable) -> None:
        """The store failed; delivery pauses."""
        self._recorder.unavailable(error)

    def settle_each(
        self,
        job: Job,
        outcomes: Sequence[Outcome],
        ended_in: Callable[[Phase], Attempt],
        now: int,
        *,
        dsn: bool,
    ) -> None:
        """Verdicts on a job's recipients by their outcomes, read at wall time `now`; `ended_in` gives the
        details of the attempt. `dsn`: the next hop reports deliveries where the sender wants that, so this
        server does not (RFC 3461, 5.2.3)."""
        may_expire, schedule = self._store.may_expire(), job.hop.policy.schedule
        settlements: list[Settlement] = []
        asked = ""
        for recipient, outcome in zip(job.recipients, outcomes, strict=True):
            try:
                if self._terms.settings.rules:
                    outcome = self.judge(outcome, job.hop, recipient.domain)
                attempt = ended_in(outcome.phase)
                verdict = verdict_on(recipient, outcome, attempt, schedule, now, may_expire=may_expire)
            except Exception:
                _log_fault([recipient])
                attempt = _bare_attempt(job.hop, outcome.phase, now)
                verdict = after_fault(recipient, outcome, attempt, schedule, now, may_expire=may_expire)
            settlements.append(Settlement(recipient=recipient, verdict=verdict))
            asked += recipient.dsn
        if "SUCCESS" in asked and self.notifier is not None and not dsn:
            settlements = self._report_deliveries(settlements, job.hop.policy.lmtp)
        self.record(settlements)

    def _report_deliveries(self, settlements: list[Settlement], final: bool) -> list[Settlement]:
        """Hand on the deliveries that their senders want reported, with the reports; returns all other
        verdicts, which the caller hands on."""
        wanted = [
            isinstance(each.verdict, Delivered) and "SUCCESS" in notify_of(each.recipient.dsn)
            for each in settlements
        ]
        delivered = list(compress(settlements, wanted))
        _tell(self.on_verdicts, delivered)
        self.report(delivered, lambda notifier, some: notifier.delivered(some, final))
        return [each for each, is_wanted in zip(settlements, wanted, strict=True) if not is_wanted]

    def settle_all(
        self,
        recipients: list[Recipient],
        outcome: Outcome,
        attempt: Attempt,
        schedule: RetrySchedule,
        begin: str = "",
        within: int | None = None,
    ) -> None:
        """The same outcome for all of them; see `record`. A retry comes `within` ms at the latest (None =
        when the schedule has it)."""
        # In this order: a leap between the two is then known.
        now = self._terms.clock.now()
        may_expire = self._store.may_expire()
        latest = None if within is None else now + within
        settlements: list[Settlement] = []
        for recipient in recipients:
            try:
                verdict = verdict_on(
                    recipient, outcome, attempt, schedule, now, may_expire=may_expire, latest=latest
                )
            except Exception:
                _log_fault([recipient])
                verdict = after_fault(recipient, outcome, attempt, schedule, now, may_expire=may_expire)
            settlements.append(Settlement(recipient=recipient, verdict=verdict))
        self.record(settlements, begin)

    def settle_job(self, job: Job, outcome: Outcome, attempt: Attempt, within: int | None = None) -> None:
        """The same outcome for all of a job, see `settle_all`."""
        begin = "" if job.begun else attempt.destination
        self.settle_all(job.recipients, outcome, attempt, job.hop.policy.schedule, begin, within)

    def own_fault(self, job: Job, possibly_delivered: bool) -> None:
        """Put off a job whose attempt an internal error ended; `possibly_delivered`: its final dot is out."""
        phase = Phase.DOT if possibly_delivered else Phase.CONNECT
        attempt = _bare_attempt(job.hop, phase, self._terms.clock.now())
        outcome = replace(failure(INTERNAL, phase), possibly_delivered=possibly_delivered)
        self.settle_job(job, outcome, attempt)

    def record(self, settlements: Sequence[Settlement], begin: str = "") -> None:
        """Have verdicts recorded, delay warnings together with their report, message by message; see
        `Recorder.settle`."""
        messages: dict[int, list[Settlement]] = {}
        others: list[Settlement] = []
        _tell(self.on_verdicts, settlements)
        for each in settlements:
            warns = isinstance(each.verdict, PutOff) and each.verdict.warning and self.notifier
            (messages.setdefault(each.recipient.spid, []) if warns else others).append(each)
        if others:
            self._recorder.settle(others, begin)
        for settled in messages.values():
            self.report(settled, lambda notifier, some: notifier.delayed(some), begin)

    def report(self, settlements: Sequence[Settlement], how: Reporting, begin: str = "") -> None:
        """Have verdicts on recipients of one message recorded together with reports on them."""
        if self.notifier is None:
            self._recorder.settle(settlements, begin)
            return
        for start in range(0, len(settlements), MOST_ON_ONE):
            some = settlements[start : start + MOST_ON_ONE]
            self._recorder.settle(some, begin, partial(how, self.notifier, some))

    def give(self, *gives: Give | None) -> None:
        """Park recipients that the table gives back, and settle those past their age limit."""
        now, given = self._terms.clock.now(), [give for give in gives if give]
        try:
            parted = part(given, now, self._terms.uptime)
        except Exception:
            untried = [each for give in given for each in give.recipients]
            _log_fault(untried)
            self.park(untried, self._terms.schedule.delays[0])
            return
        for until, recipients in parted.parked.items():
            self._recorder.park(recipients, until)
        for judged in parted.judged:
            hop, outcome = judged.lane.hop, failure(judged.reply, Phase.CONNECT)
            attempt = _bare_attempt(hop, Phase.CONNECT, now)
            self.settle_all(judged.recipients, outcome, attempt, hop.policy.schedule, hop.destination.name)
        self._warn(parted.warned, now)

    def _warn(self, warned: Iterable[tuple[int, Judged]], now: int) -> None:
        """Have recipients wait on and warn their senders of the delay. No attempt has an outcome here that
        `verdict_on` could judge, so the verdict is made here; while the clock is in doubt they are parked."""
        may_warn = self._store.may_expire()
        for until, judged in warned:
            if not may_warn:
                self._recorder.park(judged.recipients, until)
                continue
            schedule = judged.lane.hop.policy.schedule
            attempt = _bare_attempt(judged.lane.hop, Phase.CONNECT, now)
            self.record(
                [
                    Settlement(
                        recipient=each,
                        verdict=Deferred(
                            reply=judged.reply,
                            attempt=attempt,
                            due=until,
                            warning=schedule.expires(each, now),
                        ),
                    )
                    for each in judged.recipients
                ],
                attempt.destination,
            )


def _tell(hears: Callable[[Heard], None], what: Heard) -> None:
    """Report to another part. Its fault must not keep a verdict from the store."""
    try:
        hears(what)
    except Exception:
        _log.exception("internal error: a listener of verdicts failed")


def _log_fault(recipients: Sequence[Recipient]) -> None:
    """Log the internal error that left these without a verdict."""
    first, count = recipients[0], len(recipients)
    text = "internal error: no verdict on %s (%d recipients)"
    _log.exception(text, first.address, count, extra={"spid": format_spid(first.spid)})


def _bare_attempt(hop: Hop, phase: Phase, now: int) -> Attempt:
    """The details of an attempt that was not made, or of which no others are known."""
    return Attempt(destination=hop.destination.name, zone=hop.policy.zone, phase=phase, at=now)
