"""Uses of idempotency keys that are under way: one of a key at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from mqcd.core.model import Key, Recipient, Submission
from mqcd.core.queueing.idempotency import Used, repeated


class Turn:
    """A use of a key; it ends when all that hold it have let it go."""

    __slots__ = ("_turns", "_waiting", "holders", "key")

    def __init__(self, turns: dict[bytes, Turn], key: Key) -> None:
        self._turns = turns
        self.key = key
        self.holders = 1
        """How many hold it: each lets it go once."""
        self._waiting: list[asyncio.Future[None]] | None = None
        turns[key.name] = self

    def hold(self) -> None:
        """One more holds it."""
        self.holders += 1

    def let_go(self) -> None:
        """One less."""
        self.holders -= 1
        if not self.holders:
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
    turning: Awaitable[Turn | Used],
    take: Callable[[Submission, Turn | None], Awaitable[Sequence[Recipient]]],
) -> Sequence[Recipient]:
    """Take a submission in its key's turn, or give the recipients of the message that came first."""
    turn = await turning
    if isinstance(turn, Used):
        return await repeated(submission, turn)
    try:
        return await take(submission, turn)
    finally:
        turn.let_go()
