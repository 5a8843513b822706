"""One AUTH exchange in its lines: base64 in, base64 out (RFC 4954, 4). Pure."""

from __future__ import annotations

from base64 import b64encode
from binascii import Error, a2b_base64

from mqcd.submit.auth.mechanisms import Entry
from mqcd.submit.auth.steps import MALFORMED, Cause, Challenge, Context, Failure, Step

MAX_LINE = 12288
"""Octets of a response line with its CRLF."""
_CANCEL = b"*"
_EMPTY = b"="


class Exchange:
    """From the AUTH command to its last response. Not to be used after a step that is no Challenge."""

    __slots__ = ("_entry", "_mechanism")

    def __init__(self, entry: Entry, context: Context) -> None:
        self._entry = entry
        self._mechanism = entry.start(context)

    def begin(self, initial: bytes) -> Step:
        """`initial`: the initial response as it came; b"" without, "=" for an empty one."""
        if not initial:
            return self._mechanism.begin()
        if self._entry.server_first:
            return MALFORMED
        return self._step(b"" if initial == _EMPTY else initial)

    def take(self, line: bytes) -> Step:
        """A line behind 334, without its CRLF."""
        if line == _CANCEL:
            return Failure(Cause.CANCELLED)
        return self._step(line)

    def _step(self, encoded: bytes) -> Step:
        # Strict as a2b_base64 may be, it takes padding behind what is whole.
        if len(encoded) % 4:
            return MALFORMED
        try:
            response = a2b_base64(encoded, strict_mode=True) if encoded else b""
        except Error:
            return MALFORMED
        return self._mechanism.step(response)


def challenge_line(challenge: Challenge) -> bytes:
    """The 334 reply that carries a challenge, with its CRLF."""
    return b"334 " + b64encode(challenge.octets) + b"\r\n"
