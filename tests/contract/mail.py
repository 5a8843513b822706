"""Mail to put into a store under test, and verdicts to settle it with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from mqcd.core.model import (
    Action,
    Amended,
    Attempt,
    Batch,
    Bounced,
    Deferred,
    Delivered,
    Envelope,
    Expired,
    Key,
    Origin,
    Phase,
    Recipient,
    Settlement,
    Submission,
    Verdict,
)
from mqcd.core.ports import Content, QueueStore
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.core.smtp.reply import Reply
from tests.fakes.clock import START_MS, FakeClock

BODY = b"Subject: hello\r\n\r\nA body.\r\n"
ATTEMPT = Attempt(destination="example.org", phase=Phase.DOT, remote_host="mx.example.org")


def delivered() -> Delivered:
    return Delivered(reply=Reply(code=250, status="2.0.0", text="ok"), attempt=ATTEMPT)


def deferred(due: int, text: str = "busy") -> Deferred:
    return Deferred(reply=Reply(code=450, status="4.2.1", text=text), attempt=ATTEMPT, due=due)


def bounced(text: str = "no such user") -> Bounced:
    return Bounced(reply=Reply(code=550, status="5.1.1", text=text), attempt=ATTEMPT)


def expired() -> Expired:
    return Expired(reply=Reply(code=450, status="4.4.1", text="nobody there"), attempt=ATTEMPT)


def where(text: str) -> Selection:
    """What a condition selects, reckoned from the time when the fake clock starts."""
    return Selection(where=parse_where(text, START_MS))


async def chunks(octets: bytes, size: int = 65536) -> AsyncIterator[bytes]:
    for start in range(0, len(octets), size):
        yield octets[start : start + size]


class Post:
    """Shorthand for what nearly every test does with a store."""

    def __init__(self, store: QueueStore, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock

    def submission(
        self,
        *recipients: str,
        sender: str = "sender@example.com",
        content: bytes | AsyncIterator[bytes] = BODY,
        origin: Origin = Origin.SMTP,
        dsn: Sequence[str] = (),
        labels: str = "",
        key: Key | None = None,
    ) -> Submission:
        spid = self.store.reserve(len(recipients) > 1)
        received = self.clock.now()
        envelope = Envelope(spid=spid, sender=sender, received=received, origin=origin, labels=labels)
        return Submission(
            envelope=envelope, recipients=recipients, content=content, recipient_dsn=dsn, key=key
        )

    async def send(
        self, *recipients: str, sender: str = "sender@example.com", content: bytes = BODY
    ) -> Sequence[Recipient]:
        return await self.store.enqueue(self.submission(*recipients, sender=sender, content=content))

    async def claim_all(self, now: int | None = None, step: int = 100) -> list[Recipient]:
        """Everything that is due; a claim may give less than there is, an empty one says all."""
        found: list[Recipient] = []
        at = self.clock.now() if now is None else now
        while claimed := await self.store.claim(step, at):
            found += claimed
        return found

    async def claim_next(self) -> tuple[int, Recipient]:
        """When the first recipient of the queue is due, and that one claimed as soon as it is.

        Moves the clock there. Waits for `watch` while the store moves records about, as it may at a start.
        """
        woken = asyncio.Event()
        self.store.watch(woken.set)
        async with asyncio.timeout(60):
            while True:
                due = self.store.next_due()
                if due is not None:
                    self.clock.advance(max(0, due - self.clock.now()))
                    if claimed := await self.store.claim(1, self.clock.now()):
                        return due, claimed[0]
                await woken.wait()
                woken.clear()

    async def claim_bounces(self) -> list[Recipient]:
        found: list[Recipient] = []
        while claimed := await self.store.claim_bounces(100):
            found += claimed
        return found

    async def settle(self, verdict: Verdict, *recipients: Recipient) -> None:
        await self.store.settle([Settlement(recipient=each, verdict=verdict) for each in recipients])

    async def defer_new(self, address: str, due: int) -> Recipient:
        """A message that was tried once, at rest in area deferred."""
        [recipient] = await self.send(address)
        [claimed] = await self.claim_all()
        await self.settle(deferred(due), claimed)
        return recipient

    async def scan(self, selection: Selection | None = None) -> dict[tuple[int, int], Recipient]:
        return {each.key: each async for each in self.store.scan(selection or Selection())}

    async def read(self, recipient: Recipient) -> bytes:
        return await read_all(await self.store.content(recipient))


async def read_all(content: Content, step: int = 10_000) -> bytes:
    """What is left in the handle, in reads of `step` octets; closes it."""
    octets = b""
    while chunk := await content.read(step):
        assert len(chunk) <= step
        octets += chunk
    content.close()
    return octets


def batch(action: Action, post: Post, **changes: object) -> Batch:
    """An operator's action, in an hour's time where it has a time."""
    made = Batch(
        id=f"{action}-1", action=action, at=post.clock.now(), by="uid:7", until=post.clock.now() + 60 * 60_000
    )
    return replace(made, **changes)  # type: ignore[arg-type]


async def carry_out(store: QueueStore, order: Batch, selection: Selection | None = None) -> tuple[int, int]:
    """How many were changed, and how many were in flight."""
    changed = in_flight = 0
    async with aclosing(store.pick(selection or Selection(), order)) as parts:
        async for part in parts:
            changed += part.changed + len(part.recipients)
            in_flight += len(part.in_flight)
            await store.settle(
                [Settlement(recipient=each, verdict=Amended(batch=order)) for each in part.recipients]
            )
    return changed, in_flight
