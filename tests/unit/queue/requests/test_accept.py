"""New mail that waits in line for a connection as soon as it is durable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mqcd.core.events import Verb
from mqcd.core.model import Recipient
from tests.contract.mail import BODY, delivered
from tests.unit.queue.support import Rig


class InLine:
    """A place in line; notes the content that comes with the mail."""

    begins = False
    destination = "mx.example.org"

    def __init__(self) -> None:
        self.used: list[bytes | None] = []

    def find(self, _recipients: Sequence[Recipient]) -> InLine:
        return self

    def use(self, content: bytes | None) -> None:
        self.used.append(content)

    def release(self) -> None:
        raise AssertionError("the mail was accepted")


async def test_mail_in_line_is_in_flight_and_not_begun(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "queue").open()
    place = InLine()
    rig.store.hand_over(place.find)
    [sent] = await rig.post.send("a@example.org")
    assert place.used == [BODY]
    assert rig.store.in_flight(sent)
    assert await rig.post.claim_all() == []
    assert rig.observer.verbs(sent.key) == [Verb.ACCEPTED]
    await rig.evacuate()
    await rig.store.begin([sent], "mx.example.org")
    await rig.post.settle(delivered(), sent)
    assert rig.observer.verbs(sent.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.DELIVERED]
    assert rig.listed() == []
    await rig.close()


async def test_mail_in_line_waits_after_a_crash(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "queue").open()
    rig.store.hand_over(InLine().find)
    [sent] = await rig.post.send("a@example.org")
    rig = await rig.killed()
    [waits] = await rig.post.claim_all()
    assert (waits.key, waits.attempts, waits.unknowns) == (sent.key, 0, 0)
    await rig.close()
