"""What a store must offer: durable documents, one for each message. `stored_queue` makes a queue of them.

A message's document is its content and a value for each recipient that has not left the queue. Values are
octets without a meaning to the store. A message whose last value is dropped is removed with its content.

The first call is `open`, then `take` until it gives nothing; `close` is the last. All come from one event
loop, and there is one `write` at a time. Failures are StoreUnavailable, for want of space StoreFull; what
else is raised is a fault.

A shared store has several servers, its nodes. Each message belongs to one of them: to the one that wrote it,
until that closes the store or its lease runs out; then to the one that takes it. The store's own clock, not
a node's, says when a lease has run out. What a node writes to a message that is no longer its own is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from mqcd.core.errors import StoreUnavailable
from mqcd.core.ports import Content
from mqcd.core.value import value

BEGUN = b"+"
"""How the value of a recipient begins that has an attempt without a verdict; others begin differently."""

Marks = Mapping[str, int]
"""Numbers that a queue remembers beside its messages, by name."""


class StoreFull(StoreUnavailable):
    """The store has no space for new mail."""


@value
class Promises:
    """What a store keeps, beyond `core.ports.QueueStore`."""

    synced: bool
    """Mail is on stable storage before it counts as accepted: it outlives a power failure."""
    atomic: bool
    """A write of several messages is kept whole or not at all. Else a crash may leave a report twice."""
    shared: bool
    """Several servers may work on one queue."""


@value
class Stored:
    """A message as it was last written."""

    spid: int
    values: Mapping[int, bytes]
    """By qid, as `Change.puts` gave them; not empty."""


@value
class Change:
    """What becomes of one message."""

    spid: int
    puts: Mapping[int, bytes]
    """New values, by qid. Each is one line, its line feed included."""
    drops: Sequence[int] = ()
    """Recipients that leave the queue."""
    due: int | None
    """When its next recipient is due, ms; None when no value is left."""
    values: Callable[[], Mapping[int, bytes]]
    """All values that there are after this change, by qid: for a store that writes whole documents."""
    is_new: bool = False
    content: bytes | None = None
    """Of a new message; None when it was staged."""
    zone: str = ""
    """Of a new message: the egress zone that a header chose, "" = none did."""
    replaced: bool = False
    """A new message of the write replaces a part of it: like that, refused when the lease has run out."""


@value
class Write:
    """Changes that are made together."""

    changes: Sequence[Change]
    """Each of another message: new ones first, ones that end last."""
    marks: Marks = field(default_factory=dict)
    """Marks with a new number. They are durable before any change is."""


class Backend(Protocol):
    """A store of documents."""

    promises: Promises
    node: int
    """Known once it is open: a number, 0 to 255, that no other node has now; 0 where it is not shared."""
    lease_ms: int
    """How long a node keeps its messages when it does not `renew`; 0 where it is not shared."""

    async def open(self) -> Marks:
        """Open the store, and remove what an earlier run left half-made. Returns the marks as last written.

        Marks are each node number's own. Raises StoreBusy when another process has a store that is not
        shared, or all node numbers are in use; StoreDamaged when it holds what cannot be read.
        """

    async def close(self) -> None:
        """Release it. Harmless when it is not open."""

    async def take(self, most: int) -> Sequence[Stored] | None:
        """Messages that become this run's own, at most `most`; none when there are no more at the moment.

        None when there may be more, but to find them takes long: the lease may have to be renewed before
        the next call.

        Where it is shared: messages that belong to no node, or to one whose lease has run out. After a call
        that failed also this run's own, since the server may have made that call: the caller knows some.
        """

    async def renew(self) -> Marks | None:
        """Renew the lease. None, unless it had run out: then another node may have taken messages, and maybe
        `node`. This one begins again with none, and with the marks that are returned.

        Not called where the store is not shared.
        """

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        """Begin to write; durable once done. After a failure the same changes may come again.

        So may the ends of messages that were new in a write that failed: of those nothing is kept, staged
        content neither, however much of that write was made. They come without new messages.

        Its result: the messages that are not this node's any more, of which nothing was written; a new one
        only together with all that it replaces. A `renew` that begins again may come before that: then
        nothing may be written from there on.
        """

    async def stage(self, spid: int, chunks: AsyncIterator[bytes]) -> int:
        """Write the content of a message that comes with a later `write`; returns its octets.

        Raises what the iterator raises, and keeps nothing then.
        """

    async def unstage(self, spid: int) -> None:
        """Remove staged content: its message does not come. Harmless when there is none."""

    async def content(self, spid: int) -> Content:
        """A message's octets; the handle stays readable when the message ends. Raises ContentUnavailable."""


class Exclusive:
    """What stores have in common that one process uses at a time."""

    node = 0
    lease_ms = 0

    async def renew(self) -> Marks | None:
        """There is no lease."""
        return None


def finished() -> asyncio.Future[Sequence[int]]:
    """A future that is done: of a write that did not have to wait."""
    future: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
    future.set_result(())
    return future


def failed(error: Exception) -> asyncio.Future[Any]:
    """A future that is done: of a write that could not be made."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
