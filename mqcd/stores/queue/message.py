"""A message, and its values: its recipients, by QID, and its events, from `FIRST_SLOT` on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from mqcd.core.errors import DecodeError, StoreDamaged
from mqcd.core.model import Recipient
from mqcd.core.queueing.spid import format_spid
from mqcd.queue.format import record
from mqcd.stores.backend import BEGUN, Stored
from mqcd.stores.queue import keys

FIRST_SLOT = 1 << 30
"""Values from this number on are events. No message has as many recipients."""
KEY_SLOT = FIRST_SLOT - 1
"""The value of an idempotency key, which is a document of its own (`keys`)."""
NEVER = 1 << 53
"""Due time of a document without recipients, ms."""

_RESTS, _EVENT, _KEY = b"-", b"!", b"k"
"""How a value begins: BEGUN or this of a recipient, whose record line follows; that of an event; of a key."""


@dataclass(slots=True)
class Message:
    """One message."""

    records: dict[int, Recipient]
    """By qid."""
    begun: set[int] = field(default_factory=set)
    """Recipients with an attempt that has no verdict yet."""
    events: dict[int, bytes] = field(default_factory=dict)
    """Lines that are in no event file yet, by slot."""
    key: bytes = b""
    """The line of an idempotency key; b"" in documents that are messages."""

    @property
    def due(self) -> int | None:
        """When its next recipient is due; None when its document ends."""
        return min(
            (each.due for each in self.records.values()), default=NEVER if self.events or self.key else None
        )

    def copy(self) -> Message:
        """One that can be changed without this one."""
        return Message(dict(self.records), set(self.begun), dict(self.events), self.key)

    def drop(self, number: int) -> None:
        """A recipient leaves the queue, or the key goes."""
        if number == KEY_SLOT:
            self.key = b""
            return
        self.records.pop(number, None)
        self.begun.discard(number)

    def add_event(self, line: bytes) -> int:
        """Returns its slot, the one above the highest: that of an event that has gone may come again."""
        slot = max(self.events, default=FIRST_SLOT - 1) + 1
        self.events[slot] = line
        return slot

    def value(self, number: int) -> bytes:
        """What is stored under this QID or slot."""
        if number >= FIRST_SLOT:
            return _EVENT + self.events[number]
        if number == KEY_SLOT:
            return _KEY + self.key
        return encode(self.records[number], number in self.begun)

    def values(self) -> Mapping[int, bytes]:
        """All of them."""
        return {number: self.value(number) for number in sorted(self.numbers)}

    @property
    def numbers(self) -> Set[int]:
        """The number of each."""
        numbers = self.records.keys() | self.events.keys()
        return numbers | {KEY_SLOT} if self.key else numbers


def encode(recipient: Recipient, begun: bool) -> bytes:
    """The value of a recipient."""
    return (BEGUN if begun else _RESTS) + record.encode(recipient)


def decode(stored: Stored) -> Message:
    """Raises StoreDamaged for a value that cannot be read."""
    message = Message({})
    try:
        for qid, value in stored.values.items():
            if qid >= FIRST_SLOT:
                message.events[qid] = value[1:]
                continue
            if qid == KEY_SLOT:
                message.key = value[1:]
                keys.decode(message.key)
                continue
            recipient = record.decode(value[1:])
            if recipient.key != (stored.spid, qid) or value[:1] not in (BEGUN, _RESTS):
                raise DecodeError("it is of another recipient")
            message.records[qid] = recipient
            if value.startswith(BEGUN):
                message.begun.add(qid)
    except DecodeError as error:
        raise StoreDamaged(f"message {format_spid(stored.spid)}: {error}") from error
    return message
