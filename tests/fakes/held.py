"""Held mail that a door asks for."""

from __future__ import annotations

from collections.abc import Callable

from mqcd.core.errors import StoreUnavailable
from mqcd.core.ports import Connection
from mqcd.core.queueing.holding import HeldDomain, Holding, HoldMode
from mqcd.submit.esmtp.calls import Collect

HOLDING = Holding(
    domains=(
        HeldDomain("etrn.example", HoldMode.ETRN),
        HeldDomain("*.etrn.example", HoldMode.ETRN),
        HeldDomain("bobs.example", HoldMode.ETRN, ("bob",)),
        HeldDomain("hold.example", HoldMode.HOLD),
        HeldDomain("atrn.example", HoldMode.ATRN, ("bob",)),
        HeldDomain("*.atrn.example", HoldMode.ATRN, ("bob",)),
    )
)


class FakeHeld:
    """`submit.session.desk.HeldMail`: a node whose name begins with "empty" has no mail, one that begins with
    "down" cannot be asked for."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []

    async def start(self, node: str, user: str) -> bool:
        self.started.append((node, user))
        if node.startswith("down"):
            raise StoreUnavailable("down")
        return not node.startswith("empty")

    async def waiting(self, call: Collect) -> bool:
        """Whether it names a domain that has mail; all that a user has are empty ones."""
        if any(domain.startswith("down") for domain in call.domains):
            raise StoreUnavailable("down")
        return any(not domain.startswith("empty") for domain in call.domains)

    async def collect(
        self, call: Collect, connection: Connection, session: str, stops: Callable[[], bool]
    ) -> None:
        """Nothing is sent."""
