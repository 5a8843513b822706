"""Uses of idempotency keys that are under way: one of a key at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from mqcd.core.model import Key, Recipient, Submission
from mqcd.core.queueing.idempotency import Used, repeated


class Turn:
    """A use of a key; it ends when its message is accepted, or when all that hold it have let it go."""

    __slots__ = ("_turns", "_waiting", "holders", "key")

    def __init__(self, turns: dict[bytes, Turn], key: Key) -> None:
        self._turns = turns
        self.key = key
        self.holders = 1
        """How many hold it: each lets it go once. 0 = it has ended."""
        self._waiting: list[asyncio.Future[None]] | None = None
        turns[key.name] = self

    def hold(self) -> None:
        """One more holds it."""
        self.holders += 1

    def let_go(self) -> None:
        """One less, unless it has ended."""
        if self.holders == 1:
            self.end()
        elif self.holders:
            self.holders -= 1

    def end(self) -> None:
        """The message is accepted, or will never be: what waits for it may look the key up."""
        self.holders = 0
        del self._turns[self.key.name]
        for future in self._waiting or ():
            if not future.done():
                future.set_result(None)

    async def ended(self) -> None:
        """Return when it has ended."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = [*(self._waiting or ()), future]
        await future


async def take_turn(turns: dict[bytes, Turn], key: Key) -> Turn:
    """Wait until no other use of the key is under way; the turn that begins then, held once."""
    while (other := turns.get(key.name)) is not None:
        await other.ended()
    return Turn(turns, key)


async def once(
    submission: Submission,
    turn: Turn | Used,
    take: Callable[[Submission, Turn | None], Awaitable[Sequence[Recipient]]],
) -> Sequence[Recipient]:
    """Take a submission in its key's turn, or give the recipients of the message that came first."""
    if isinstance(turn, Used):
        return await repeated(submission, turn)
    try:
        return await take(submission, turn)
    finally:
        if turn.holders:
            turn.let_go()
