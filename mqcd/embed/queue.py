"""A queue for an asyncio program.

    async with Queue("/var/spool/mine", relay) as queue:
        await queue.enqueue("me@example.org", ["you@example.net"], message)

* `enqueue` returns once the message is durable; from then on the queue sees to it that it is relayed, tried
  again, or reported as failed to its sender, also after a crash of the program.
* Nothing runs before it is opened: no thread, no process, no file. Open and close it on one event loop.
* A directory belongs to one queue at a time.

Raises StoreUnavailable when nothing can be recorded (disk full, store gone), StoreBusy and StoreDamaged when
it is opened, ValueError for bad addresses and contents.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area, AreaStats, Body, Envelope, Key, Recipient, Submission
from mqcd.core.observing.null_observer import NullObserver
from mqcd.core.ports import Clock, Observer, QueueStore
from mqcd.core.queueing.idempotency import key_of
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.marks import marks_of
from mqcd.disk.waits import uncancellable
from mqcd.embed.backoff import five_attempts
from mqcd.embed.message import (
    Backoff,
    Draft,
    EnqueuePolicy,
    Relay,
    RelayPolicy,
    as_octets,
    check_parties,
    checked,
)
from mqcd.embed.wishes import BounceFactory, Parts, SmtpRelay, Wishes
from mqcd.net.clock import SystemClock

if TYPE_CHECKING:
    import email.message

    from mqcd.config.settings import Settings
    from mqcd.stores.backend import Backend


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do it; a cancellation takes effect when it is done."""
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await uncancellable(doing)
        raise


class Queue:
    """A durable queue; see the module."""

    def __init__(
        self,
        store: str | Path | Backend,
        relay: Relay | SmtpRelay | None = None,
        backoff: Backoff | None = None,
        *,
        bounce: BounceFactory | None = None,
        reports: bool = True,
        before_enqueue: Sequence[EnqueuePolicy] = (),
        before_delivery: Sequence[RelayPolicy] = (),
        at_once: int = 20,
        hostname: str = "",
        settings: Settings | None = None,
        observer: Observer | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`store`: a directory for the clustered-file queue, or a store of `mqcd.stores`.

        `relay`: None = mail waits, for another run. `backoff`: None = `five_attempts`, and for SmtpRelay the
        retry schedule of `settings`. `bounce` makes the reports on failures, None = as RFC 3464 says;
        without `reports` there are none. `at_once`: attempts of a `relay` that run at once. `before_delivery`
        applies to a `relay` of the program's own. `settings`: of queue, deliver and report; None = defaults.
        """
        self._wishes = Wishes(
            store=store,
            relay=relay,
            backoff=backoff or (None if isinstance(relay, SmtpRelay) or settings else five_attempts),
            bounce=bounce,
            reports=reports,
            policies=before_delivery,
            at_once=at_once,
            hostname=hostname or socket.gethostname(),
            settings=settings,
        )
        self._before_enqueue = before_enqueue
        self._observer = observer or NullObserver()
        self._clock = clock or SystemClock()
        self._parts: Parts | None = None

    # ------------------------------------------------------------ opening and closing

    async def __aenter__(self) -> Queue:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Take mail, recover what the last run left, then relay. Harmless when it is open."""
        if self._parts is not None:
            return
        # Here, so that the import of this module is quick.
        from mqcd.embed.assembly import Assembly

        parts = Assembly(self._wishes, self._clock, self._observer)
        await parts.open()
        self._parts = parts

    async def close(self) -> None:
        """End the attempts under way, and release the store, also where it is cancelled meanwhile. Harmless
        when it is not open."""
        parts, self._parts = self._parts, None
        if parts is not None:
            await to_its_end(parts.close())

    @property
    def store(self) -> QueueStore:
        """The open store, for what this class has no method for."""
        return self._opened.store

    @property
    def _opened(self) -> Parts:
        if self._parts is None:
            raise StoreUnavailable("the queue is not open")
        return self._parts

    # ------------------------------------------------------------ mail

    async def enqueue(
        self,
        sender: str,
        recipients: Sequence[str],
        content: bytes | str | email.message.Message,
        *,
        key: str = "",
    ) -> Sequence[str]:
        """Take a message; durable on return. Returns its name, or those of the messages made of it.

        With a `key` that was used for this message within `key_age` nothing is added: returns the names of
        then. "" = no key. Several messages are taken one by one: after StoreUnavailable some may be durable,
        and a repeat with the same key adds only the others. Raises ValueError, StoreUnavailable, and
        `Refused` of a policy, or where the key was used for another message.
        """
        given = checked(Draft(sender=sender, recipients=tuple(recipients), content=as_octets(content)))
        drafts = [given]
        for policy in self._before_enqueue:
            made: list[Draft] = []
            for draft in drafts:
                decided = await policy(draft)
                made += [draft] if decided is None else map(checked, decided)
            drafts = made
        return [
            await self._take(draft, _key(f"{key}\n{number}", given) if key else None)
            for number, draft in enumerate(drafts)
        ]

    async def _take(self, draft: Draft, key: Key | None) -> str:
        spid = self.reserve(len(draft.recipients) > 1)
        marks = marks_of(draft.content)
        envelope = Envelope(
            spid=spid,
            sender=draft.sender,
            received=self._clock.now(),
            body=Body.SEVEN if draft.content.isascii() else Body.EIGHT,
            smtputf8=not all(map(str.isascii, (draft.sender, *draft.recipients))),
            labels=marks.labels(),
            message_id=marks.message_id,
        )
        submission = Submission(
            envelope=envelope, recipients=draft.recipients, content=draft.content, key=key
        )
        return format_spid((await self.store.enqueue(submission))[0].spid)

    def reserve(self, several: bool) -> int:
        """The SPID of the next message, for `submit`."""
        return self.store.reserve(several)

    async def submit(self, submission: Submission) -> None:
        """Take a message with an envelope of the program's own; durable on return.

        Raises as `enqueue` does, but for policies.
        """
        check_parties(submission.envelope.sender, submission.recipients)
        await self.store.enqueue(submission)

    # ------------------------------------------------------------ looks

    def recipients(self, selection: Selection | None = None) -> AsyncIterator[Recipient]:
        """The recipients in the queue that match, of one moment."""
        return self.store.scan(selection or Selection())

    def stats(self) -> Mapping[Area, AreaStats]:
        """What each area holds."""
        return self.store.stats()

    async def retry(self, selection: Selection | None = None) -> int:
        """Make mail that waits due now; returns how many recipients. While the store cannot record it, it is
        asked again."""
        return await self._opened.retry(selection or Selection())


def _key(text: str, given: Draft) -> Key:
    """Of the message as it was given: policies may add what differs each time."""
    return key_of("library", text, given.sender, given.recipients, given.content)
