"""Gives a letter to the server: SMTP over a connected socket, blocking (RFC 5321).

Outcomes: `Taken`, with the recipients that were refused for good while others were accepted; Refused, when
none was, or the message; Busy, when the server cannot take it now; OSError, when the connection breaks.
After a break behind the final dot it is not known whether the message was taken.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from mqcd.core.value import value
from mqcd.sendmail.letter import Letter, with_author

SECONDS = 600.0
"""How long a reply may take (RFC 5321, 4.5.3.2.6)."""
_MAX_REPLY = 1 << 16
_XCHARS = "".join(map(chr, range(33, 127))).replace("+", "").replace("=", "")


@value
class Answer:
    """A reply."""

    code: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The last line, without its code."""
        return self.lines[-1]

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


class Refused(Exception):
    """The server does not take it, for good. Fault: the letter's, or its sender's rights."""

    def __init__(self, answer: Answer, recipient: str = "") -> None:
        super().__init__(f"{recipient}: {answer}" if recipient else str(answer))
        self.answer = answer


class Busy(Exception):
    """The server does not take it now."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(str(answer))
        self.answer = answer


@value
class Taken:
    """The server is responsible for the message."""

    answer: Answer
    refused: tuple[tuple[str, Answer], ...]
    """Recipients that it will never be sent to, each with why."""


def submit(
    connection: socket.socket, letter: Letter, user: str, show: Callable[[str], None] | None = None
) -> Taken:
    """Say all of it. `user` is the sender's own name; `show` gets each line.

    Raises Refused, Busy, OSError.
    """
    talk = _Talk(connection, show)
    host = talk.hear().text.partition(" ")[0]
    talk.say("EHLO localhost")
    content = with_author(letter, user, host)
    talk.say(_mail(letter, len(content)))
    notify = f" NOTIFY={letter.notify}" if letter.notify else ""
    refused: list[tuple[str, Answer]] = []
    for recipient in letter.recipients:
        try:
            talk.say(f"RCPT TO:<{recipient}>{notify}")
        except Refused as error:
            refused.append((recipient, error.answer))
    if len(refused) == len(letter.recipients):
        recipient, answer = refused[0]
        raise Refused(answer, recipient)
    talk.say("DATA")
    answer = talk.send(content)
    return Taken(answer=answer, refused=tuple(refused))


def _mail(letter: Letter, octets: int) -> str:
    words = [f"MAIL FROM:<{letter.sender}> SIZE={octets}"]
    if letter.body:
        words.append(f"BODY={letter.body}")
    if not all(map(str.isascii, (letter.sender, *letter.recipients))):
        words.append("SMTPUTF8")
    if letter.returned:
        words.append(f"RET={letter.returned}")
    if letter.envelope_id:
        words.append(f"ENVID={xtext(letter.envelope_id)}")
    return " ".join(words)


def xtext(text: str) -> str:
    """The form of RFC 3461, 4."""
    return "".join(
        char if char in _XCHARS else "".join(f"+{octet:02X}" for octet in char.encode()) for char in text
    )


class _Talk:
    """Lines and replies."""

    def __init__(self, connection: socket.socket, show: Callable[[str], None] | None) -> None:
        self._connection = connection
        self._show = show
        self._held = b""

    def say(self, line: str) -> Answer:
        """A command and its reply. Raises Refused, Busy, OSError."""
        if self._show is not None:
            self._show(f">>> {line}")
        self._connection.sendall(line.encode("utf-8", "replace") + b"\r\n")
        return self.hear()

    def send(self, content: bytes) -> Answer:
        """Content and its reply. Raises Refused, Busy, OSError."""
        stuffed = content.replace(b"\r\n.", b"\r\n..")
        if stuffed.startswith(b"."):
            stuffed = b"." + stuffed
        self._connection.sendall(stuffed + b".\r\n")
        return self.hear()

    def hear(self) -> Answer:
        """The next reply. Raises Refused, Busy, OSError."""
        lines: list[str] = []
        while True:
            line = self._line()
            if self._show is not None:
                self._show(line)
            if not (line[:3].isdecimal() and line[:3].isascii()):
                raise ConnectionError(f"not a mail server: {line[:80]!r}")
            lines.append(line[4:])
            if line[3:4] != "-":
                break
        answer = Answer(code=int(line[:3]), lines=tuple(lines))
        if answer.code >= 500:
            raise Refused(answer)
        if answer.code >= 400:
            raise Busy(answer)
        return answer

    def _line(self) -> str:
        while b"\n" not in self._held:
            octets = self._connection.recv(4096)
            if not octets:
                raise ConnectionError("the server closed the connection")
            self._held += octets
            if len(self._held) > _MAX_REPLY:
                raise ConnectionError("a reply without end")
        line, _, self._held = self._held.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")
