"""Values of a message, and marks, as octets: for stores that keep them as one document. Pure.

A line for each: the number or name, a space, the value. A value is a line itself, without a line feed inside.
"""

from __future__ import annotations

from collections.abc import Mapping

from mqcd.core.errors import StoreDamaged
from mqcd.stores.backend import Marks


def pack(values: Mapping[int, bytes]) -> bytes:
    """Values by qid; each ends with a line feed."""
    return b"".join([b"%d %b" % (qid, value) for qid, value in values.items()])


def unpack(document: bytes) -> Mapping[int, bytes]:
    """Raises StoreDamaged."""
    values: dict[int, bytes] = {}
    for line in document.splitlines(keepends=True):
        number, _, value = line.partition(b" ")
        if not number.isdigit() or not value.endswith(b"\n"):
            raise StoreDamaged(f"this line is no recipient: {line[:120]!r}")
        values[int(number)] = value
    return values


def pack_marks(marks: Marks) -> bytes:
    """Numbers by name."""
    return "".join(f"{name} {number}\n" for name, number in marks.items()).encode()


def unpack_marks(document: bytes) -> Marks:
    """Raises StoreDamaged."""
    marks: dict[str, int] = {}
    for line in document.decode("ascii", "replace").splitlines():
        name, _, number = line.partition(" ")
        if not number.isdigit():
            raise StoreDamaged(f"this line is no mark: {line[:120]!r}")
        marks[name] = int(number)
    return marks
