"""Follows each recipient as an observer of the server, like its metrics and log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mqcd.core.events import Verb
from mqcd.core.model import Attempted, Bounced, Deferred, Delivered, Expired, Origin, Recipient
from mqcd.core.observing.null_observer import NullObserver
from mqcd.demo.letters import SENDER, End, Letter


@dataclass(slots=True, kw_only=True)
class Story:
    """One recipient's: grows as things happen."""

    kind: str
    address: str
    end: End
    verbs: list[Verb] = field(default_factory=list)
    reply: str = ""
    """The last reply of the next hop."""
    took_ms: int = 0
    """From acceptance to the last verdict."""
    due: int = 0
    """When it is tried again, ms."""

    @property
    def ended(self) -> bool:
        """Whether it has come to the end that it should."""
        deferred = self.verbs.count(Verb.DEFERRED)
        last = self.verbs[-1] if self.verbs else None
        match self.end:
            case End.DELIVERED:
                return last is Verb.DELIVERED
            case End.RETRIED:
                return last is Verb.DELIVERED and deferred == 1
            case End.WAITING:
                return last is Verb.DEFERRED and deferred >= 2
            case End.REPORTED:
                return last is Verb.REPORTED


class Watch(NullObserver):
    """`mqcd.core.ports.Observer` that shows the stories of the demonstration's recipients; refusals and
    connections are no part of them."""

    def __init__(self, letters: Sequence[Letter]) -> None:
        self.stories = [
            Story(kind=letter.kind, address=address, end=letter.end)
            for letter in letters
            for address in letter.recipients
        ]
        self._changed = asyncio.Event()

    async def until(self, done: Callable[[], bool]) -> None:
        """Return once `done` holds; looked at whenever something has happened."""
        while not done():
            self._changed.clear()
            await self._changed.wait()

    @property
    def complete(self) -> bool:
        """Whether every recipient has come to its end, the report included."""
        reports = sum(story.kind == "report" for story in self.stories)
        return reports == 1 and all(story.ended for story in self.stories)

    def accepted(self, at: int, recipients: Sequence[Recipient]) -> None:
        """The queue has it; a report begins a story of its own."""
        for recipient in recipients:
            if recipient.envelope.origin is Origin.REPORT and recipient.address == SENDER:
                self.stories.append(Story(kind="report", address=SENDER, end=End.DELIVERED))
            self._note(recipient, Verb.ACCEPTED)

    def attempted(self, at: int, recipients: Sequence[Recipient], destination: str) -> None:
        for recipient in recipients:
            self._note(recipient, Verb.ATTEMPTED)

    def delivered(self, at: int, recipient: Recipient, verdict: Delivered) -> None:
        self._verdict(at, recipient, verdict, Verb.DELIVERED)

    def deferred(self, at: int, recipient: Recipient, verdict: Deferred) -> None:
        self._verdict(at, recipient, verdict, Verb.DEFERRED, verdict.due)

    def bounced(self, at: int, recipient: Recipient, verdict: Bounced) -> None:
        self._verdict(at, recipient, verdict, Verb.BOUNCED)

    def expired(self, at: int, recipient: Recipient, verdict: Expired) -> None:
        self._verdict(at, recipient, verdict, Verb.EXPIRED)

    def reported(self, at: int, recipient: Recipient, report_spid: int) -> None:
        """Its report is in the queue."""
        self._note(recipient, Verb.REPORTED)

    def discarded(self, at: int, recipient: Recipient, reason: str) -> None:
        """Without a report; does not happen here."""
        self._note(recipient, Verb.DISCARDED)

    def outcome_unknown(self, at: int, recipient: Recipient) -> None:
        """A crash; does not happen here."""
        self._note(recipient, Verb.OUTCOME_UNKNOWN)

    def _verdict(self, at: int, recipient: Recipient, verdict: Attempted, verb: Verb, due: int = 0) -> None:
        story = self._story(recipient)
        if story is not None:
            story.reply = str(verdict.reply)
            story.took_ms = at - recipient.envelope.received
            story.due = due
        self._note(recipient, verb)

    def _note(self, recipient: Recipient, verb: Verb) -> None:
        story = self._story(recipient)
        if story is not None:
            story.verbs.append(verb)
        self._changed.set()

    def _story(self, recipient: Recipient) -> Story | None:
        return next((story for story in self.stories if story.address == recipient.address), None)
