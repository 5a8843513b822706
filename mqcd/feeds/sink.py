"""What a feed sends to. Two implement it: `webhook` and `traces`; tests have a third."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mqcd.core.errors import MqcdError


class NotTaken(MqcdError):
    """The receiver has not taken a portion: it is sent again later."""

    def __init__(self, text: str, wait_ms: int = 0) -> None:
        """`wait_ms`: how long the receiver asks to wait."""
        super().__init__(text)
        self.wait_ms = wait_ms


class Sink(Protocol):
    """A receiver of events."""

    async def send(self, lines: Sequence[bytes]) -> None:
        """Hand a portion over: on return the receiver has taken it. Raises NotTaken."""

    async def close(self) -> None:
        """Let connections go."""
