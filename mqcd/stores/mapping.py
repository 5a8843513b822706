"""Messages in any mutable mapping of strings to octets: a dict, a shelf, or what another library offers.

Promises what the mapping does: a dict is gone with its process; a shelf (`shelve.open(..., writeback=False)`)
is there after it, and is as safe as its database is. Nothing is synced. Each message is one value.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping, Sequence

from mqcd.core.content import MemoryContent
from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.core.queueing.spid import format_spid, parse_spid
from mqcd.stores import values
from mqcd.stores.backend import Exclusive, Marks, Promises, Stored, Write, failed, finished

_MARKS = "marks"
_META, _CONTENT = "meta.", "content."
"""Prefixes of the keys of a message; its SPID follows."""


class MappingStore(Exclusive):
    """`backend.Backend` in a mapping."""

    promises = Promises(synced=False, atomic=False, shared=False)

    def __init__(self, mapping: MutableMapping[str, bytes] | None = None, *, max_octets: int = 0) -> None:
        """`mapping`: None = a dict of its own, which each `open` finds as the last `close` left it.

        `max_octets` bounds the content that it holds, 0 = no bound: more raises StoreUnavailable.
        """
        self._mapping: MutableMapping[str, bytes] = {} if mapping is None else mapping
        self._max_octets = max_octets
        self._octets = 0
        self._left: list[str] = []
        """Keys of messages that were not taken yet."""

    async def open(self) -> Marks:
        """Content without a message is removed: its message never came."""
        keys = list(self._mapping)
        messages = {key.removeprefix(_META) for key in keys if key.startswith(_META)}
        for key in keys:
            if key.startswith(_CONTENT) and key.removeprefix(_CONTENT) not in messages:
                del self._mapping[key]
        self._left = sorted(messages)
        if self._max_octets:
            self._octets = sum(len(self._mapping[key]) for key in self._mapping if key.startswith(_CONTENT))
        return values.unpack_marks(self._mapping.get(_MARKS, b""))

    async def close(self) -> None:
        """The mapping is its owner's."""

    async def take(self, most: int) -> Sequence[Stored]:
        """Messages by SPID."""
        names, self._left = self._left[:most], self._left[most:]
        return [
            Stored(spid=parse_spid(name), values=values.unpack(self._mapping[_META + name])) for name in names
        ]

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        """Done at once."""
        news = sum(len(change.content) for change in write.changes if change.content is not None)
        if not self._has_room(news):
            return failed(StoreUnavailable(f"the store holds its {self._max_octets} octets; try later"))
        if write.marks:
            self._mapping[_MARKS] = values.pack_marks(write.marks)
        for change in write.changes:
            name = format_spid(change.spid)
            if change.due is None:
                self._mapping.pop(_META + name, None)
                self._drop(_CONTENT + name)
                continue
            if change.content is not None:
                self._keep(_CONTENT + name, change.content)
            self._mapping[_META + name] = values.pack(change.values())
        return finished()

    async def stage(self, spid: int, chunks: AsyncIterator[bytes]) -> int:
        """Gathered in memory."""
        content = b"".join([chunk async for chunk in chunks])
        if not self._has_room(len(content)):
            raise StoreUnavailable(f"the store holds its {self._max_octets} octets; try later")
        self._keep(_CONTENT + format_spid(spid), content)
        return len(content)

    async def unstage(self, spid: int) -> None:
        """See the port."""
        self._drop(_CONTENT + format_spid(spid))

    async def content(self, spid: int) -> MemoryContent:
        """The octets as one."""
        content = self._mapping.get(_CONTENT + format_spid(spid))
        if content is None:
            raise ContentUnavailable(f"no content of message {format_spid(spid)}")
        return MemoryContent(content)

    def _has_room(self, octets: int) -> bool:
        return not self._max_octets or self._octets + octets <= self._max_octets

    def _keep(self, key: str, content: bytes) -> None:
        self._mapping[key] = content
        self._octets += len(content)

    def _drop(self, key: str) -> None:
        self._octets -= len(self._mapping.pop(key, b""))
