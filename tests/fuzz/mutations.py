"""Deterministic mutations of octets: what a torn write, a bad sector or a wrong hand makes of a file."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

_NUMBERS = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f", b"\x80", b"\xff", b"9" * 25, b"-1", b"|", b"\n", b"%")


def truncations(data: bytes, most: int) -> Iterator[bytes]:
    """Every beginning of it, or `most` of them, evenly spread."""
    step = max(1, len(data) // most)
    for length in range(0, len(data), step):
        yield data[:length]


def mutations(data: bytes, others: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """`count` changed copies; `others` give octets to splice in."""
    chance = random.Random(seed)
    for _ in range(count):
        made = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
            _change(made, others, chance)
        yield bytes(made)


def _change(made: bytearray, others: Sequence[bytes], chance: random.Random) -> None:
    at, to = sorted((chance.randint(0, len(made)), chance.randint(0, len(made))))
    to = min(to, at + chance.choice((1, 2, 4, 8, 512)))
    match chance.randrange(7):
        case 0 if at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        case 1:
            del made[at:to]
        case 2:
            made[at:at] = made[at:to]
        case 3:
            made[at:to] = bytes(to - at)
        case 4:
            number = chance.choice(_NUMBERS)
            made[at : at + len(number)] = number
        case 5:
            made[at:at] = chance.choice(_NUMBERS)
        case _:
            other = chance.choice(others)
            start = chance.randint(0, len(other))
            made[at:to] = other[start : start + to - at]
