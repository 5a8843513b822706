"""Servers that speak, or leave, when nobody asked them: what they say answers nothing that is sent later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mqcd.core.events import Verb
from mqcd.core.model import Bounced, Deferred
from tests.fakes.dialer import Peer
from tests.unit.deliver.kit import Kit

LARGE = b"Subject: more than one chunk\r\n\r\n" + b"line\r\n" * 30_000
SMALL = b"Subject: one chunk\r\n\r\nline\r\n"


def later(act: Callable[[], object], turns: int = 3) -> None:
    """Do something after some turns of the loop."""
    loop = asyncio.get_running_loop()
    loop.call_soon(act if turns == 0 else lambda: later(act, turns - 1))


class Leaving(Peer):
    """Closes as soon as it has asked for the content."""

    def _data(self, verb: str, text: str) -> None:
        super()._data(verb, text)
        self.open = False
        self._connection.hang_up()


class Interrupting(Peer):
    """Says something in the midst of the content, and reads on."""

    says = b""

    def receive(self, data: bytes) -> None:
        begun = self._content is not None
        super().receive(data)
        if begun and self._content is not None:
            self._connection.say(self.says)


class Repeating(Peer):
    """Says a while after a message was taken that it was."""

    def _take_message(self, content: bytes) -> None:
        super()._take_message(content)
        later(lambda: self._connection.say(b"250 2.0.0 taken, as I said\r\n"))


class Hesitant(Peer):
    """Takes its time over the answers to what was sent ahead of its answer to MAIL."""

    def _mail(self, verb: str, text: str) -> None:
        if any(line.startswith("RCPT") for line in self.log):
            super()._mail(verb, text)
        else:
            self._connection.say(b"450 4.1.8 not now\r\n")

    def _rcpt(self, verb: str, text: str) -> None:
        if any(line == "RSET" for line in self.log):
            super()._rcpt(verb, text)
        else:
            later(lambda: self._connection.say(b"503 5.5.1 no sender\r\n"))

    def _data(self, verb: str, text: str) -> None:
        if self._recipients:
            super()._data(verb, text)
        else:
            later(lambda: self._connection.say(b"503 5.5.1 no recipients\r\n"), 6)


@pytest.mark.parametrize("content", [SMALL, LARGE])
async def test_a_server_that_leaves_before_the_dot_raises_no_doubt(content: bytes) -> None:
    async with Kit(hosts={"192.0.2.1": Leaving}) as kit:
        await kit.submit("to@example.com", content=content)
        await kit.heard(Verb.DEFERRED)
        verdict = kit.observer.of(Verb.DEFERRED)[0].verdict
        assert isinstance(verdict, Deferred)
        assert not verdict.possibly_delivered
        assert verdict.reply.text.endswith("phase data")


@pytest.mark.parametrize(
    ("says", "verb"),
    [
        ("250 2.0.0 taken", Verb.DEFERRED),
        ("451 4.3.1 full", Verb.DEFERRED),
        ("552 5.3.4 enough", Verb.BOUNCED),
    ],
)
async def test_a_reply_amid_content_may_refuse_never_deliver(says: str, verb: Verb) -> None:
    def interrupting() -> Peer:
        peer = Interrupting()
        peer.says = f"{says}\r\n".encode()
        return peer

    async with Kit(hosts={"192.0.2.1": interrupting}) as kit:
        await kit.submit("to@example.com", content=LARGE)
        await kit.heard(verb)
        verdict = kit.observer.of(verb)[0].verdict
        assert isinstance(verdict, Deferred | Bounced)
        assert says.partition(" ")[2].split()[-1] in verdict.reply.text
        assert not getattr(verdict, "possibly_delivered", False)
        assert len(kit.dialer.peers[0]._connection.writes) == 3, "no more of the content is sent"


@pytest.mark.parametrize("extensions", [("PIPELINING",), ("CHUNKING",), ()])
async def test_a_kept_connection_on_which_something_came_is_not_used(extensions: tuple[str, ...]) -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Repeating(extensions=extensions)}) as kit:
        await kit.submit("one@example.com")
        await kit.heard(Verb.DELIVERED)
        for _ in range(10):
            await asyncio.sleep(0)
        [second] = await kit.submit("two@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        assert len(kit.dialer.peers) == 2
        assert not any("two@" in line for line in kit.dialer.peers[0].log)
        assert kit.observer.verbs(second.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.DELIVERED]


async def test_late_replies_to_pipelined_commands_keep_the_connection() -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Hesitant(extensions=("PIPELINING",))}) as kit:
        await kit.submit("one@example.com")
        await kit.heard(Verb.DEFERRED)
        await kit.submit("two@example.com")
        await kit.heard(Verb.DELIVERED)
        [peer] = kit.dialer.peers
        transaction = ["MAIL", "RCPT", "DATA"]
        assert [line.split()[0] for line in peer.log] == ["EHLO", *transaction, "RSET", *transaction]
