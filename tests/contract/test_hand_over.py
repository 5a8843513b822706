"""New mail that is handed to a free connection: in flight and begun as soon as it is durable."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mqcd.core.events import Verb
from mqcd.core.model import Recipient
from mqcd.core.ports import QueueStore
from tests.contract.harness import HOUR, Harness, Restart
from tests.contract.mail import BODY, Post, deferred, delivered


class Connection:
    """A connection that takes one message at a time; notes what is done with it."""

    destination = "mx.example.org"
    begins = True

    def __init__(self) -> None:
        self.free = True
        self.asked: list[Sequence[Recipient]] = []
        self.used: list[bytes | None] = []
        self.released = 0

    def find(self, recipients: Sequence[Recipient]) -> Connection | None:
        self.asked.append(recipients)
        return self if self.free else None

    def use(self, content: bytes | None) -> None:
        self.used.append(content)

    def release(self) -> None:
        self.released += 1


@pytest.fixture
def connection(store: QueueStore) -> Connection:
    made = Connection()
    store.hand_over(made.find)
    return made


async def test_handed_mail_is_in_flight_and_begun(
    store: QueueStore, post: Post, harness: Harness, connection: Connection
) -> None:
    sent = await post.send("a@example.org", "b@example.org")
    assert connection.used == [BODY]
    assert all(store.in_flight(each) for each in sent)
    assert await post.claim_all() == []
    assert [harness.observer.verbs(each.key) for each in sent] == [[Verb.ACCEPTED, Verb.ATTEMPTED]] * 2
    assert await post.read(sent[0]) == BODY
    due = post.clock.now() + HOUR
    await post.settle(deferred(due), *sent)
    assert [each.attempts for each in await post.claim_all(due)] == [1, 1]


async def test_mail_without_a_free_connection_is_claimed(post: Post, connection: Connection) -> None:
    connection.free = False
    sent = await post.send("a@example.org")
    assert [list(each) for each in connection.asked] == [list(sent)]
    assert await post.claim_all() == list(sent)
    assert connection.used == []


async def test_new_mail_overtakes_no_other_new_mail(post: Post, connection: Connection) -> None:
    connection.free = False
    first = await post.send("a@example.org")
    connection.free = True
    second = await post.send("b@example.org")
    assert connection.used == []
    assert await post.claim_all() == [*first, *second]
    await post.settle(delivered(), *first, *second)
    await post.send("c@example.org")
    assert len(connection.used) == 1


async def test_due_mail_does_not_hold_up_new_mail(post: Post, connection: Connection) -> None:
    connection.free = False
    await post.defer_new("a@example.org", post.clock.now() + HOUR)
    connection.free = True
    await post.send("b@example.org")
    assert len(connection.used) == 1


Restarting = tuple[Harness, Restart]


async def test_handed_mail_without_verdict_is_outcome_unknown(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    post.store.hand_over(Connection().find)
    [sent] = await post.send("a@example.org")
    post = Post(await harness.restart(how), harness.clock)
    assert harness.observer.verbs(sent.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.OUTCOME_UNKNOWN]
    [waits] = (await post.scan()).values()
    assert (waits.key, waits.attempts, waits.unknowns) == (sent.key, 1, 1)
    assert await post.read(waits) == BODY


async def test_handed_and_settled_mail_is_gone_after_a_restart(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    post.store.hand_over(Connection().find)
    await post.settle(delivered(), *await post.send("a@example.org", "b@example.org"))
    post = Post(await harness.restart(how), harness.clock)
    assert await post.scan() == {}
