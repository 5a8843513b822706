"""Which mqcd reads what stands on disk. Pure.

The MANIFEST's first line names the newest version that has written to the queue. A program reads whatever
older ones wrote, so that version reads all of it: an error about a format that is not known here can name it,
also after an older one was started in between.
"""

from __future__ import annotations

import re

from mqcd import __version__


def newest(one: str, other: str) -> str:
    """The later of two versions; "" is before all."""
    return max(one, other, key=_order)


def unknown(what: str, writer: object) -> str:
    """That `what` is of a format not known here, and what reads it; `writer` as the MANIFEST has it."""
    known = isinstance(writer, str) and _order(writer) > _order(__version__)
    return f"{what} is not known here; {f'mqcd {writer}' if known else 'a newer mqcd'} reads it"


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall("[0-9]{1,9}", version)))
