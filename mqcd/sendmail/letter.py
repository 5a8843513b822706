"""A message of a program, made ready for SMTP. Pure.

* Lines may end in LF or CRLF. A CR alone ends a line too, and NUL is left out: SMTP carries neither.
* A first line as mailboxes have it (`From user date`) is dropped, and so are Bcc and Resent-Bcc.
* Where the header is not closed by an empty line, one is added before the first line that is no field.
* With -t the recipients are those of To, Cc and Bcc, or of the Resent- fields where there are any, besides
  those of the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mqcd.core.errors import DecodeError
from mqcd.core.value import value
from mqcd.sendmail.arguments import Asked

MAX_RECIPIENTS = 1 << 20
"""Octets of all recipients of a message; the server's own limit is twice that."""
MOST = 64 << 20
"""Octets of a message that the server reads from a file or a request: it holds each whole."""
_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:")
_EOL = b"\r\n"
_RECIPIENTS = ("to", "cc", "bcc")
_RESENT = tuple(f"resent-{name}" for name in _RECIPIENTS)
_SECRET = frozenset(("bcc", "resent-bcc"))

Field = tuple[str, bytes]
"""Name in lower case, and the whole field with its line ends."""


class BadLetter(Exception):
    """A message that cannot be sent. Fault: the program that calls."""


@value
class Letter:
    """One message with its envelope. Addresses may lack their domain: the server adds its own."""

    sender: str
    """Reverse-path; "" = null."""
    author: str | None
    """Full name for the From field that is to be added, "" = none; None = the message has one."""
    recipients: tuple[str, ...]
    content: bytes
    """Lines without NUL, not dot-stuffed. Each ends in CRLF; without the last one there is no final dot."""
    notify: str = ""
    returned: str = ""
    envelope_id: str = ""
    body: str = ""


def make_letter(asked: Asked, octets: bytes, *, user: str, full_name: str) -> Letter:
    """The letter that the command line and its input make. Raises BadLetter."""
    fields, body = split_header(normal_lines(octets, dots=asked.dots))
    recipients = list(asked.recipients)
    if asked.from_header:
        recipients += addresses(fields)
    if not recipients:
        raise BadLetter("no recipients: name them, or give -t and a message that has To, Cc or Bcc")
    kept = [each for name, each in fields if name not in _SECRET]
    content = b"".join((*kept, _EOL, body))
    named = any(name == "from" for name, _ in fields)
    author = asked.name if asked.name is not None else full_name
    letter = Letter(
        sender=user if asked.sender is None else asked.sender,
        author=None if named else author,
        recipients=tuple(dict.fromkeys(recipients)),
        content=content,
        notify=asked.notify,
        returned=asked.returned,
        envelope_id=asked.envelope_id,
        body=asked.body or ("" if content.isascii() else "8BITMIME"),
    )
    check_letter(letter)
    return letter


def at_most(maxmsgsize: int) -> int:
    """Octets of a message that the server holds whole, by its limit (0 = none)."""
    return min(maxmsgsize or MOST, MOST)


def check_letter(letter: Letter) -> None:
    """Raises BadLetter where SMTP could not carry envelope or content."""
    content = letter.content
    ends = {content.count(each) for each in (b"\r\n", b"\r", b"\n")}
    if len(ends) > 1 or b"\0" in content or (content and not content.endswith(_EOL)):
        raise BadLetter("a line that does not end in CRLF, or a NUL")
    words = (letter.sender, letter.envelope_id, *letter.recipients)
    if not all(map(str.isprintable, words)):
        raise BadLetter("an address or the -V text has characters that cannot be seen")
    if not all(
        word.isprintable() and " " not in word for word in (letter.notify, letter.returned, letter.body)
    ):
        raise BadLetter("a parameter of the envelope is more than one word")
    if not letter.recipients or not all(letter.recipients):
        raise BadLetter("an empty recipient")
    if sum(len(each.encode()) for each in letter.recipients) > MAX_RECIPIENTS:
        raise BadLetter("too many recipients for one message: send it in parts")


def normal_lines(octets: bytes, *, dots: bool) -> bytes:
    """The message with CRLF at the end of each line, up to a line of one dot unless those are content."""
    text = octets.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\0", b"")
    if not dots:
        text = text[: _end_dot(text)]
    if text.startswith(b"From "):
        text = text.partition(b"\n")[2]
    if text and not text.endswith(b"\n"):
        text += b"\n"
    return text.replace(b"\n", _EOL)


def _end_dot(text: bytes) -> int:
    if text == b"." or text.startswith(b".\n"):
        return 0
    end = text.find(b"\n.\n")
    if end >= 0:
        return end + 1
    return len(text) - 1 if text.endswith(b"\n.") else len(text)


def split_header(content: bytes) -> tuple[Sequence[Field], bytes]:
    """The header's fields, and the body behind its empty line, if there is one."""
    fields: list[Field] = []
    position = start = 0
    name = ""
    while position < len(content):
        end = content.index(_EOL, position) + 2
        folded = name and content[position] in b" \t"
        match = None if folded else _FIELD.match(content, position, end)
        if not folded:
            if name:
                fields.append((name, content[start:position]))
            name, start = "", position
            if match is None:
                break
            name = match.group(1).decode("ascii").lower()
        position = end
    if name:
        fields.append((name, content[start:position]))
    rest = content[position:]
    return fields, rest[2:] if rest.startswith(_EOL) else rest


def addresses(fields: Sequence[Field]) -> Iterator[str]:
    """The addresses in the fields that name recipients. Raises BadLetter."""
    # It takes longer to load than all else that a short message needs.
    from mqcd.core.smtp.mailboxes import mailboxes

    present = {name for name, _ in fields}
    wanted = _RESENT if present & set(_RESENT) else _RECIPIENTS
    for name, field in fields:
        if name in wanted:
            value = field.partition(b":")[2].decode("utf-8", "surrogateescape").replace("\r\n", "")
            try:
                yield from mailboxes(value, bare=True)
            except DecodeError as error:
                raise BadLetter(f"{name.title()}: {error}") from error


def with_author(letter: Letter, user: str, host: str) -> bytes:
    """The content, with the From field that it lacks; `host` completes what has no domain."""
    if letter.author is None:
        return letter.content
    from email.utils import formataddr

    address = letter.sender or user
    full = address if "@" in address else f"{address}@{host}"
    # What is no ASCII makes the name an encoded word (RFC 2047); an address stays as it is (RFC 6532).
    name = "".join(char for char in letter.author if char.isprintable())
    shown = formataddr((name, "a@a")).removesuffix("<a@a>") if name else ""
    return f"From: {shown}<{full}>\r\n".encode() + letter.content
