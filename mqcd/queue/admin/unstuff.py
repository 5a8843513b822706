"""Content as it went over the wire after DATA, without its doubled dots (RFC 5321, 4.5.2). Pure.

Only the first dot of a line goes, and only a CRLF ends a line: a bare LF is content like any other octet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_LINE_END = b"\r\n"


def unstuff(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content in chunks, however the octets are cut; none of them is empty."""
    # What may be the end of a line is held back until the octet behind it is known. The beginning
    # counts as one, and is not part of the content.
    held, skip = _LINE_END, len(_LINE_END)
    for chunk in chunks:
        data = held + chunk
        keep = 2 if data.endswith(_LINE_END) else 1 if data.endswith(b"\r") else 0
        held = data[len(data) - keep :]
        out = data[: len(data) - keep].replace(b"\r\n.", _LINE_END)
        if out:
            out, skip = out[skip:], 0
        if out:
            yield out
    if held[skip:]:
        yield held[skip:]
