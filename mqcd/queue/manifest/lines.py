"""The lines of the MANIFEST as octets: their checksums, and where the log ends. Pure.

A line is `CRC JSON\\n`, CRC the zlib.crc32 of the JSON text in 8 hex digits. Each but the first was one write
behind the end of the file. Of such a write a crash may have left any sectors (512 octets); one that never
came is zeros, or lies behind the end of the file, and JSON holds no zeros. So the octets distinguish a torn
line, which never counted, from a damaged one, which was whole. The last line, by the first row that fits:

| checksum | line feed | else | the line is |
|---|---|---|---|
| right | there | | whole |
| right | missing | nothing but zeros behind it | whole: what is written may count |
| wrong | | it begins with text that its checksum fits, and goes on | damaged, where a line feed stood |
| wrong | there | something in each of its sectors | damaged |
| wrong | | | torn |

A line before the last that does not check is damaged. So is a file without a whole first line, which was
written under another name and renamed.
"""

from __future__ import annotations

import zlib
from itertools import pairwise

_SECTOR = 512
"""Octets that a disk writes whole or not at all."""
_CRC_SIZE = 9
"""Octets of a checksum and its space."""


def pack_line(text: bytes) -> bytes:
    """A line of this JSON text."""
    return b"%08x %s\n" % (zlib.crc32(text), text)


def text_of(line: bytes) -> bytes | None:
    """The JSON text of a line without its line feed; None if its checksum is wrong."""
    text = line[_CRC_SIZE:]
    return text if line[:_CRC_SIZE] == b"%08x " % zlib.crc32(text) else None


def split_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """The lines of a file, without line feeds, and the torn one behind them, b"" = none.

    A damaged one, also the last, is among the lines: it does not check.
    """
    *lines, last = data.split(b"\n")
    fed = not last and len(lines) > 1
    if fed:
        last = lines.pop()
    elif not lines or not last:
        # There is the first line alone, or not even that.
        return lines, last
    bare = last.rstrip(b"\0")
    if fed and text_of(last) is not None:
        return [*lines, last], b""
    if not fed and text_of(bare) is not None:
        return [*lines, bare], b""
    if _goes_on(last):
        return [*lines, last], b""
    if fed and not _lacks_a_sector(data, len(data) - len(last) - 1):
        return [*lines, last], b""
    return lines, last


def _lacks_a_sector(data: bytes, start: int) -> bool:
    """Whether some sector of the last line, which begins at `start`, has nothing but zeros of it."""
    ends = [*range((start // _SECTOR + 1) * _SECTOR, len(data), _SECTOR), len(data)]
    return any(not data[at:end].strip(b"\0") for at, end in pairwise([start, *ends]))


def _goes_on(line: bytes) -> bool:
    """Whether a line begins with text that its checksum fits, and something else than zeros follows.

    That stands where a line feed was, before another edit.
    """
    at, crc = _CRC_SIZE, 0
    while (end := line.find(b"}", at) + 1) > 0:
        crc = zlib.crc32(line[at:end], crc)
        at = end
        if line[:_CRC_SIZE] == b"%08x " % crc:
            return line[end:].strip(b"\0") != b""
    return False
