"""What a queue over documents holds at one moment, for the account of all mail; and the same as octets.

As octets: `#`, the number of the newest event file, and `shared` or `alone`; then a line for each recipient,
`+` if it is in flight, else `-`, and its record; then `!` and the event for each event that is in no file.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqcd.core.errors import DecodeError
from mqcd.core.value import value

IN_FLIGHT, WAITS = b"+", b"-"
_EVENT, _HEAD = b"!", b"#"
_SHARED, _ALONE = b"shared", b"alone"


@value
class Moment:
    """Of one server."""

    records: Sequence[bytes]
    """A line for each recipient, behind IN_FLIGHT or WAITS."""
    newest: int
    """The number of its newest event file; 0 = there is none."""
    events: Sequence[bytes]
    """Lines that are in no event file."""
    shared: bool
    """Whether other servers may have mail in the same store."""

    def pack(self) -> bytes:
        """As octets."""
        head = b"%b%d %b\n" % (_HEAD, self.newest, _SHARED if self.shared else _ALONE)
        return b"".join([head, *self.records, *(_EVENT + line for line in self.events)])


def unpack(octets: bytes) -> Moment:
    """The moment of such octets. Raises DecodeError."""
    head, *lines = octets.splitlines(keepends=True) or [b""]
    newest, _, kind = head.removeprefix(_HEAD).strip().partition(b" ")
    if not head.startswith(_HEAD) or not newest.isdigit() or kind not in (_SHARED, _ALONE):
        raise DecodeError("the answer does not begin as a moment of a queue does")
    return Moment(
        records=[line for line in lines if not line.startswith(_EVENT)],
        newest=int(newest),
        events=[line[1:] for line in lines if line.startswith(_EVENT)],
        shared=kind == _SHARED,
    )
