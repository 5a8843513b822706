"""A deliverer with everything around it in memory: what the tests of the agents share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from mqcd.config.settings import ClientSettings, DeliverSettings, HostPort, RelaySettings
from mqcd.core.events import Verb
from mqcd.core.model import Body, Deferred, Delivered, Envelope, Recipient, Submission
from mqcd.core.ports import Notifier
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.deliver.service import Deliverer
from tests.fakes.clock import FakeClock
from tests.fakes.dialer import FakeDialer, Peer
from tests.fakes.observer import RecordingObserver
from tests.fakes.resolver import FakeResolver
from tests.fakes.store import MemoryStore

MINUTE = 60_000
SCHEDULE = RetrySchedule(
    delays=(15 * MINUTE, 30 * MINUTE), maxtime=72 * 60 * MINUTE, maxtime_reports=24 * 60 * MINUTE
)
CONTENT = b"Subject: hello\r\n\r\nworld\r\n"
RELAYED = DeliverSettings(
    client=ClientSettings(announcehost="mx.example.org"),
    relays=(RelaySettings(address=HostPort(host="192.0.2.1", port=2525)),),
)
"""Everything goes to one relay."""
BY_DNS = replace(RELAYED, relays=())


class Kit:
    """A store, a deliverer, and the world that it delivers to."""

    def __init__(
        self,
        settings: DeliverSettings = RELAYED,
        hosts: Mapping[str, Callable[[], Peer] | str | None] | None = None,
        resolver: FakeResolver | None = None,
        schedule: RetrySchedule = SCHEDULE,
        store: Callable[[FakeClock, RecordingObserver], MemoryStore] = MemoryStore,
        notifier: Notifier | None = None,
        most_connections: int = 0,
    ) -> None:
        self.clock = FakeClock()
        self.observer = RecordingObserver()
        self.store = store(self.clock, self.observer)
        self.dialer = FakeDialer({"192.0.2.1": Peer} if hosts is None else hosts)
        self.deliverer = Deliverer(
            settings,
            schedule,
            store=self.store,
            clock=self.clock,
            resolver=resolver or FakeResolver(),
            dialer=self.dialer,
            observer=self.observer,
            notifier=notifier,
            most_connections=most_connections,
        )

    async def __aenter__(self) -> Self:
        await self.store.open()
        await self.deliverer.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        stop = asyncio.ensure_future(self.deliverer.stop(1000))
        while not stop.done():
            await self.clock.run_for(1000)
        await stop
        await self.store.close()

    async def submit(
        self,
        *recipients: str,
        content: bytes = CONTENT,
        sender: str = "from@example.org",
        client: str = "",
        body: Body = Body.SEVEN,
        smtputf8: bool = False,
        dsn: str = "",
        notify: Sequence[str] = (),
        listener: str = "",
    ) -> Sequence[Recipient]:
        envelope = Envelope(
            spid=self.store.reserve(len(recipients) > 1),
            sender=sender,
            client=client,
            listener=listener,
            received=self.clock.now(),
            body=body,
            smtputf8=smtputf8,
            dsn=dsn,
        )
        submission = Submission(
            envelope=envelope, recipients=recipients, content=content, recipient_dsn=notify
        )
        return await self.store.enqueue(submission)

    async def heard(self, verb: Verb, count: int = 1) -> None:
        """Let the loop run until `verb` was heard `count` times; time stands still."""
        await self.until(lambda: self.observer.count(verb) >= count)

    async def deferred(self) -> Deferred:
        """The verdict on the first recipient that is deferred."""
        await self.heard(Verb.DEFERRED)
        verdict = self.observer.of(Verb.DEFERRED)[0].verdict
        assert isinstance(verdict, Deferred)
        return verdict

    async def delivered(self) -> Delivered:
        """The verdict on the first recipient that is delivered."""
        await self.heard(Verb.DELIVERED)
        verdict = self.observer.of(Verb.DELIVERED)[0].verdict
        assert isinstance(verdict, Delivered)
        return verdict

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the loop run until something holds; fails after very many turns."""
        for _ in range(5000):
            if holds():
                return
            await asyncio.sleep(0)
        raise AssertionError(f"it never came to that; heard: {self.observer.verbs()}")
