"""Cuts what a client sends into lines. Pure."""

from collections.abc import Callable

# RFC 5321, 4.5.3.1.4 asks for 512 octets, and the extensions for more; this leaves room for all.
MAX_LINE = 2048


class LineReader:
    """Keeps what is not a whole line yet, of at most MAX_LINE octets and a chunk."""

    __slots__ = ("_lines", "_overlong")

    def __init__(self) -> None:
        self._lines = bytearray()
        self._overlong = False

    def feed(self, octets: bytes, obey: Callable[[bytes], bool]) -> bytes | None:
        """Give each whole line, its line feed included, to `obey`, b"" for one above MAX_LINE octets.

        Returns what follows the line that made `obey` say False; None when there was none.
        """
        lines = self._lines
        if not lines and octets.find(b"\n") == len(octets) - 1:
            # Nearly always a chunk is one line; spare it the buffer.
            return None if obey(self._checked(octets)) else b""
        lines += octets
        start = 0
        while (end := lines.find(b"\n", start)) >= 0:
            line = bytes(lines[start : end + 1])
            start = end + 1
            if not obey(self._checked(line)):
                rest = bytes(lines[start:])
                lines.clear()
                return rest
        del lines[:start]
        if len(lines) > MAX_LINE:
            self._overlong = True
            lines.clear()
        return None

    def _checked(self, line: bytes) -> bytes:
        overlong = self._overlong or len(line) > MAX_LINE
        self._overlong = False
        return b"" if overlong else line
