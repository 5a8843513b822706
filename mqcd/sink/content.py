"""The octets between DATA and the end of data: find the end, undo dot-stuffing (RFC 5321, 4.5.2).

The end is CRLF, dot, CRLF and nothing else: a bare CR or LF never ends a message. Pure; the
result does not depend on how the octets were cut into chunks. Each octet is searched once.
"""

_CRLF = b"\r\n"
_END = b"\r\n.\r\n"


class ContentCollector:
    """Takes chunks until the end of data; keeps at most 4/3 of `max_size`, and a chunk."""

    __slots__ = ("_buffer", "_max_size", "oversize")

    def __init__(self, *, max_size: int) -> None:
        # The CRLF of the DATA line belongs to the end of an empty message, and makes a stuffed
        # dot on the first line look like any other.
        self._buffer = bytearray(_CRLF)
        self._max_size = max_size
        self.oversize = False
        """More than `max_size` octets have come; the content is lost, the end is still found."""

    def take(self, chunk: bytes) -> bytes | None:
        """Add a chunk; at the end of data return what follows it in the chunk, else None."""
        buffer = self._buffer
        before = len(buffer)
        buffer += chunk
        end = buffer.find(_END, max(0, before - len(_END) + 1))
        if end < 0:
            # At most one octet in four is a stuffed dot, so this is too much whatever follows.
            if len(buffer) > (self._max_size + 16) * 4 // 3:
                self._forget()
            return None
        rest = bytes(buffer[end + len(_END) :])
        del buffer[end + len(_CRLF) :]
        return rest

    def content(self) -> bytes:
        """The message, after `take` found its end; b"" if it was too large."""
        buffer = self._buffer
        if b"\r\n." in buffer:
            buffer = buffer.replace(b"\r\n.", _CRLF)
        if self.oversize or len(buffer) - len(_CRLF) > self._max_size:
            self.oversize = True
            return b""
        return bytes(memoryview(buffer)[len(_CRLF) :])

    def _forget(self) -> None:
        self.oversize = True
        del self._buffer[: 1 - len(_END)]
