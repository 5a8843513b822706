"""Idempotency keys of a queue of documents: each is a document of its own, until the key is too old.

A document takes about 700 octets of memory. Where a store is shared, each node knows the keys of its own
documents, and of those that it took over: a repeat that comes to another node is not recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mqcd.core.errors import DecodeError
from mqcd.core.model import Key
from mqcd.core.queueing.idempotency import DIGEST_OCTETS, NAME_OCTETS, Used
from mqcd.core.queueing.spid import format_spid, parse_spid
from mqcd.queue.keys.turns import Turn, take_turn

_NAME_END = 2 * NAME_OCTETS
_DIGEST_END = _NAME_END + 2 * DIGEST_OCTETS
_SPID_END = _DIGEST_END + 16


def encode(name: bytes, used: Used) -> bytes:
    """The line of a key's document."""
    return f"{name.hex()}{used.digest.hex()}{format_spid(used.spid)}{used.at}\n".encode()


def decode(line: bytes) -> tuple[bytes, Used]:
    """Name and use. Raises DecodeError."""
    text = line.decode("ascii", "replace")
    try:
        name, digest = bytes.fromhex(text[:_NAME_END]), bytes.fromhex(text[_NAME_END:_DIGEST_END])
        used = Used(parse_spid(text[_DIGEST_END:_SPID_END]), digest, int(text[_SPID_END:]))
    except ValueError as error:
        raise DecodeError(f"no idempotency key: {text[:80]!r}") from error
    if len(name) != NAME_OCTETS or len(digest) != DIGEST_OCTETS:
        raise DecodeError(f"no idempotency key: {text[:80]!r}")
    return name, used


class StoredKeys:
    """Of one queue."""

    def __init__(self, since: Callable[[], int]) -> None:
        """`since`: uses of before this time are forgotten, s."""
        self._turns: dict[bytes, Turn] = {}
        self._since = since
        self._used: dict[bytes, tuple[Used, int]] = {}
        """By name, about in the order of use: the use, and the SPID of its document."""
        self.repeats = 0
        """Submissions that were answered as repeats."""

    def __len__(self) -> int:
        return len(self._used)

    async def turn(self, key: Key) -> Turn | Used:
        """Wait until no other use is under way; what is remembered of the key, or a turn that is held."""
        turn = await take_turn(self._turns, key)
        known = self._used.get(key.name)
        if known is None or known[0].at < self._since():
            return turn
        turn.let_go()
        self.repeats += 1
        return known[0]

    def add(self, name: bytes, used: Used, document: int) -> None:
        """A key's document is durable."""
        self._used.pop(name, None)
        self._used[name] = used, document

    def forget(self, line: bytes) -> None:
        """Another node has this key's document."""
        self._used.pop(decode(line)[0], None)

    def take_expired(self) -> Iterator[int]:
        """The documents of keys that are too old; they are forgotten."""
        while self._used:
            name, (used, document) = next(iter(self._used.items()))
            if used.at >= self._since():
                return
            del self._used[name]
            yield document
