"""What a hook has decided, as a value. Pure."""

from __future__ import annotations

from mqcd.core.errors import DecodeError
from mqcd.core.smtp.reply import Reply, join_lines, parse_line
from mqcd.core.value import value
from mqcd.submit.esmtp.refusal import DoorRefused
from mqcd.submit.filters.envelope import Left


@value
class Accepts:
    """The command is taken, or the message."""

    octets: bytes
    """The reply; of DATA b"" = the door's own."""
    left: str | Left | None = None
    """Of EHLO and HELO the client's name, else the message; None = the hook has left no name or no sender,
    which undoes its command, or no message is begun."""
    content: bytes = b""
    """Of DATA."""


Verdict = Accepts | DoorRefused


def read_status(status: object) -> tuple[bytes, Reply]:
    """The octets and meaning of what a hook returns: one final reply, of one line or several.

    Raises DecodeError for a text that is none, TypeError for what is no text.
    """
    octets = status.encode() if isinstance(status, str) else status
    if not isinstance(octets, bytes):
        raise TypeError(f"a hook returns its reply as text, not {type(status).__name__}")
    parts = octets.split(b"\r\n")
    lines = [parse_line(part) for part in parts]
    codes = {code for code, _, _ in lines}
    last = [is_last for _, is_last, _ in lines]
    whole = len(codes) == 1 and last == [False] * (len(lines) - 1) + [True]
    # 3yz asks for more, which no hook reads.
    if not whole or octets[:1] == b"3" or any(b"\r" in part or b"\n" in part for part in parts):
        raise DecodeError(f"not one SMTP reply: {octets[:80]!r}")
    return octets + b"\r\n", join_lines(codes.pop(), [text for _, _, text in lines])
