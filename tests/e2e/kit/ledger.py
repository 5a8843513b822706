"""What the server's event files say, and the sums that must hold in them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.contract import schema
from tests.e2e.kit import mail
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server

Event = dict[str, Any]
Key = tuple[str, int]
"""SPID and QID of a recipient."""


class Ledger:
    """All events of a server that has stopped in order: everything is exported then."""

    def __init__(self, var: Path) -> None:
        self.events: list[Event] = []
        for path in sorted((var / "events").glob("*.jsonl.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                self.events += [json.loads(line) for line in lines]
        schema.check(self.events)
        ids = [event["id"] for event in self.events]
        assert len(ids) == len(set(ids)), "an event was written twice"

    def count(self, verb: str) -> Counter[Key]:
        """How often this happened to each recipient."""
        return Counter((event["spid"], event["qid"]) for event in self.events if event["event"] == verb)

    def check(self) -> None:
        """Each recipient was accepted once, and came to one end."""
        accepted = self.count("accepted")
        assert set(accepted.values()) <= {1}
        ends = self.count("delivered") + self.count("bounced") + self.count("expired") + self.count("removed")
        assert set(ends.values()) <= {1}
        assert ends.keys() <= accepted.keys()

    def unfinished(self) -> set[Key]:
        """Accepted and not yet at an end."""
        ends = self.count("delivered") + self.count("bounced") + self.count("expired") + self.count("removed")
        return self.count("accepted").keys() - ends.keys()

    def surprises(self, came: Counter[Key]) -> dict[Key, int]:
        """What arrived more often than the server owned up to."""
        unknown = self.count("outcome-unknown")
        return {key: times for key, times in came.items() if times - 1 > unknown[key]}


def stopped(server: Server) -> Ledger:
    """Stop a server in order; what its ledger then says, checked.

    What a slow disk left of a stop is recovered by the next start, as the server logs then.
    """
    assert server.stop() == 0
    while server.left_something():
        assert server.start().stop() == 0
    ledger = Ledger(server.var)
    ledger.check()
    return ledger


def arrivals(receivers: Iterable[Receiver]) -> Counter[Key]:
    """How often each message of one recipient came to any of them."""
    return Counter((mail.spid_of(each.content), 1) for receiver in receivers for each in receiver.mail.all())
