"""Event files made by hand: a life of a recipient is a few calls."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

from mqcd.core.events import format_time
from mqcd.core.queueing.spid import format_spid, spid_at

T0 = 1_763_464_020_000
"""2025-11-18T11:07:00Z."""
NOW = 1_900_000_000_000
"""When all that tests tell of is long past."""
MINUTE, HOUR = 60_000, 3_600_000
Event = dict[str, object]


class Log:
    """The events of one node, in order."""

    def __init__(self, node: str = "n1", shard: int = 0) -> None:
        self.node, self.shard = node, shard
        self.sequence = 0
        self.segment = 0
        self.events: list[Event] = []
        self._count = 0

    def add(self, verb: str, at: int, **fields: object) -> Event:
        self.sequence += 1
        name = f"{self.node}/{self.shard}/{self.sequence}"
        event: Event = {"v": 1, "id": name, "event": verb, "at": format_time(at), **fields}
        self.events.append(event)
        return event

    def accept(self, at: int, recipient: str = "a@site.example", sender: str = "s@here.example") -> Event:
        """Gives what the events of one recipient share."""
        self._count += 1
        shared: Event = {
            "spid": format_spid(spid_at(at) | self._count << 1),
            "qid": 1,
            "sender": sender,
            "recipient": recipient,
            "domain": recipient.rpartition("@")[2],
            "size": 1000,
            "origin": "smtp",
        }
        self.add("accepted", at, **shared, recipients=1)
        return shared

    def attempt(self, shared: Event, at: int, number: int = 1) -> None:
        self.add("attempted", at, spid=shared["spid"], qid=shared["qid"], attempt=number)

    def verdict(self, shared: Event, verb: str, at: int, number: int = 1, **fields: object) -> Event:
        reply = {"delivered": (250, "2.0.0", "ok"), "deferred": (451, "4.7.1", "Greylisted")}
        code, status, text = reply.get(verb, (550, "5.1.1", "User unknown"))
        told: Event = {
            "attempt": number, "destination": shared["domain"], "site": shared["domain"], "phase": "dot",
            "code": code, "status": status, "reply": text, "class": "success" if code == 250 else "policy",
            "connect_ms": 5, "attempt_ms": 20, "queued_ms": 100, "tls": "TLSv1.3",
        }  # fmt: skip
        return self.add(verb, at, **shared, **(told | fields))

    def deliver(self, at: int, recipient: str = "a@site.example") -> Event:
        shared = self.accept(at, recipient)
        self.attempt(shared, at + 10)
        self.verdict(shared, "delivered", at + 200)
        return shared

    def seal(self, directory: Path) -> Path:
        """Write what there is as the next segment's file."""
        self.segment += 1
        events, self.events = self.events, []
        return write(directory / f"{self.node}-{self.shard}-{self.segment:010d}.jsonl.gz", events)


def write(path: Path, events: Iterable[Event]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(each) + "\n" for each in events).encode()))
    return path


def ids_in(directory: Path) -> list[str]:
    """The ids of all events in good files, sorted: what `events` must hold, each once."""
    lines = [
        line
        for path in directory.glob("n*.jsonl.gz")
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    return sorted(str(json.loads(line)["id"]) for line in lines)
