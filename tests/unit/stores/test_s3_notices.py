"""Nodes on an object store that hear of one another by a queue of SQS (moto's), instead of listing nodes."""

from __future__ import annotations

import uuid

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.stores import s3_notices
from mqcd.stores.queue.taking import POLL_MS
from mqcd.stores.s3_notices import Notice, Notices
from mqcd.stores.s3_objects import Objects
from tests.fakes import s3_server
from tests.unit.stores.test_s3 import Node

pytestmark = pytest.mark.slow
LEASE_MS = 3000


class Lists(Objects):
    """Counts the listings of nodes."""

    count = 0

    async def list(self, kind: str) -> tuple[list[dict[str, object]], float]:
        self.count += kind == "node"
        return await super().list(kind)


@pytest.fixture
async def pair() -> tuple[Node, Node]:
    name = uuid.uuid4().hex
    queue_url = await s3_server.make_queue(name)
    made = [Node(f"{name}/", Lists, LEASE_MS, queue_url) for _ in range(2)]
    return made[0], made[1]


async def test_mail_of_a_node_that_closes_is_taken_at_once(pair: tuple[Node, Node]) -> None:
    first, second = pair
    post = await first.start()
    await second.start()
    [recipient] = await post.send("a@example.org")
    before = second.objects.count  # type: ignore[attr-defined]
    for _ in range(20):
        await second.clock.run_for(POLL_MS)
    assert second.objects.count - before < 20  # type: ignore[attr-defined]
    await first.queue.close()
    await second.until(lambda: recipient.spid in second.queue._live.documents.messages)
    await second.queue.close()


async def test_mail_of_a_node_that_is_gone_is_taken_after_its_lease(
    pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it lives its notice is delayed again and again."""
    delayed: list[str] = []

    async def delay(self: Notices, notice: Notice, delay_s: float) -> None:
        delayed.append(notice.session)
        await real(self, notice, delay_s)

    monkeypatch.setattr(s3_notices, "_HIDDEN_S", 5)
    real = Notices.delay
    monkeypatch.setattr(Notices, "delay", delay)
    first, second = pair
    post = await first.start()
    await second.start()
    [recipient] = await post.send("a@example.org")
    while len([each for each in delayed if each.startswith("000-")]) < 2:
        await first.clock.run_for(POLL_MS)
        await second.clock.run_for(POLL_MS)
    assert recipient.spid in first.queue._live.documents.messages
    # It hears nothing any more; what it had heard is hidden for a while.
    assert first.store._notices is not None
    listening = first.store._notices._listening
    assert listening is not None
    listening.cancel()
    await second.until(lambda: recipient.spid in second.queue._live.documents.messages)
    for node in (first, second):
        await node.queue.close()


async def test_a_queue_that_is_not_there_is_reported() -> None:
    node = Node(f"{uuid.uuid4().hex}/", queue_url=f"{s3_server.shared_server().url}/1/none")
    with pytest.raises(StoreUnavailable, match="notices"):
        await node.queue.open()
