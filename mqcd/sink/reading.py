"""Parses client input: lines, arguments of MAIL, RCPT and BDAT, message octets. Pure.

* Lines and content do not depend on how the octets were cut into chunks.
* A command whose argument cannot be taken raises BadCommand, whose reply goes to the client as it is.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mqcd.core.smtp.transparency import Unstuffer
from mqcd.core.value import value

# RFC 5321, 4.5.3.1.4 asks for 512 octets, and the extensions for more; this leaves room for all.
MAX_LINE = 2048

# Quoted strings may hold any octet, `>` included; the two alternatives begin with different
# octets, so matching is linear.
_PATH = rb" ?<((?:\"(?:[^\"\\]|\\.)*\"|[^\">])*)>(?: +(.*?))? *"
_FROM = re.compile(rb"FROM:" + _PATH, re.IGNORECASE | re.DOTALL)
_TO = re.compile(rb"TO:" + _PATH, re.IGNORECASE | re.DOTALL)

_BDAT = re.compile(rb"([0-9]{1,19})( +LAST)? *", re.IGNORECASE)
_XTEXT = re.compile(rb"[!-*,-<>-~+]{1,100}")
_ORCPT = re.compile(rb"[A-Za-z0-9-]+;[!-<>-~]{1,500}")
_OCCASIONS = {b"SUCCESS", b"FAILURE", b"DELAY"}

UNKNOWN = b"500 5.5.2 Command not recognised\r\n"
_BAD_PARAMETER = b"501 5.5.4 Bad value of a parameter\r\n"
_UNKNOWN_PARAMETER = b"555 5.5.4 Parameter not recognised\r\n"


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


class BadCommand(Exception):
    """A command to be answered with `reply` (CRLF included) and otherwise ignored."""

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply)
        self.reply = reply


@value
class Mail:
    """A MAIL command: the reverse-path and what its parameters promise about the content."""

    sender: str
    size: int = 0
    """Declared by SIZE (RFC 1870), octets; 0 = not declared."""
    body: str = ""
    smtputf8: bool = False
    dsn: str = ""
    """RET and ENVID (RFC 3461) as given."""


@dataclass(slots=True)
class _Parameters:
    """The parameters of one command, as they are being read."""

    size: int = 0
    body: str = ""
    smtputf8: bool = False
    dsn: list[str] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)

    def take_size(self, value: bytes) -> None:
        if not value.isdigit() or len(value) > 20:
            raise BadCommand(_BAD_PARAMETER)
        self.size = int(value)

    def take_body(self, value: bytes) -> None:
        if value.upper() not in (b"7BIT", b"8BITMIME"):
            raise BadCommand(_BAD_PARAMETER)
        self.body = value.upper().decode("ascii")

    def take_smtputf8(self, value: bytes) -> None:
        if value:
            raise BadCommand(_BAD_PARAMETER)
        self.smtputf8 = True

    def take_ret(self, value: bytes) -> None:
        self._take_dsn(b"RET", value, value.upper() in (b"FULL", b"HDRS"))

    def take_envid(self, value: bytes) -> None:
        self._take_dsn(b"ENVID", value, _XTEXT.fullmatch(value) is not None)

    def take_notify(self, value: bytes) -> None:
        words = set(value.upper().split(b","))
        self._take_dsn(b"NOTIFY", value, words == {b"NEVER"} or words <= _OCCASIONS)

    def take_orcpt(self, value: bytes) -> None:
        self._take_dsn(b"ORCPT", value, _ORCPT.fullmatch(value) is not None)

    def _take_dsn(self, name: bytes, value: bytes, fits: bool) -> None:
        if not fits:
            raise BadCommand(_BAD_PARAMETER)
        self.dsn.append(f"{name.decode()}={value.decode('ascii', 'replace')}")


_Taker = Callable[[_Parameters, bytes], None]
_MAIL_PARAMETERS: Mapping[bytes, _Taker] = {
    b"SIZE": _Parameters.take_size,
    b"BODY": _Parameters.take_body,
    b"SMTPUTF8": _Parameters.take_smtputf8,
}
_MAIL_DSN: Mapping[bytes, _Taker] = {b"RET": _Parameters.take_ret, b"ENVID": _Parameters.take_envid}
_RCPT_DSN: Mapping[bytes, _Taker] = {b"NOTIFY": _Parameters.take_notify, b"ORCPT": _Parameters.take_orcpt}
_NONE: Mapping[bytes, _Taker] = {}


def parse_mail(argument: bytes, *, dsn: bool) -> Mail:
    """What follows the word MAIL; `dsn` says whether that extension is offered. Raises BadCommand."""
    found = _FROM.fullmatch(argument)
    if found is None:
        raise BadCommand(b"501 5.5.4 Expected MAIL FROM:<address>\r\n")
    path, rest = found.groups()
    if not rest:
        return Mail(sender=_address(path, smtputf8=False))
    given = _parameters(rest, {**_MAIL_PARAMETERS, **_MAIL_DSN} if dsn else _MAIL_PARAMETERS)
    return Mail(
        sender=_address(path, smtputf8=given.smtputf8),
        size=given.size,
        body=given.body,
        smtputf8=given.smtputf8,
        dsn=" ".join(given.dsn),
    )


def parse_rcpt(argument: bytes, *, smtputf8: bool, dsn: bool) -> tuple[str, str]:
    """What follows the word RCPT: the recipient's address, and NOTIFY and ORCPT (RFC 3461) as given.

    `smtputf8` says whether the transaction's MAIL had that parameter, `dsn` whether that extension is
    offered. Raises BadCommand.
    """
    found = _TO.fullmatch(argument)
    if found is None:
        raise BadCommand(b"501 5.5.4 Expected RCPT TO:<address>\r\n")
    path, rest = found.groups()
    if not path:
        raise BadCommand(b"501 5.1.3 A recipient cannot be empty\r\n")
    given = _parameters(rest or b"", _RCPT_DSN if dsn else _NONE)
    return _address(path, smtputf8=smtputf8), " ".join(given.dsn)


def parse_bdat(argument: bytes, *, offered: bool) -> tuple[int, bool]:
    """What follows the word BDAT: how many octets, and whether they are the last. Raises BadCommand.

    How many octets follow a command that cannot be read is unknown: they are taken for commands.
    """
    if not offered:
        raise BadCommand(UNKNOWN)
    found = _BDAT.fullmatch(argument)
    if found is None:
        raise BadCommand(b"501 5.5.4 Expected BDAT octets [LAST]\r\n")
    return int(found[1]), bool(found[2])


def _address(path: bytes, *, smtputf8: bool) -> str:
    if path.isascii():
        return path.decode("ascii")
    if not smtputf8:
        raise BadCommand(b"553 5.6.7 An address beyond ASCII needs SMTPUTF8\r\n")
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        raise BadCommand(b"501 5.5.2 The address is not UTF-8\r\n") from None


def _parameters(text: bytes, known: Mapping[bytes, _Taker]) -> _Parameters:
    given = _Parameters()
    for word in text.split():
        name, _, value = word.partition(b"=")
        name = name.upper()
        taker = known.get(name)
        if taker is None:
            raise BadCommand(_UNKNOWN_PARAMETER)
        if name in given.seen:
            raise BadCommand(_BAD_PARAMETER)
        given.seen.add(name)
        taker(given, value)
    return given


class ContentCollector:
    """Takes octets until the end of data; keeps at most `max_size` of them, and as many as come at once."""

    __slots__ = ("_max_size", "_parts", "_reader")

    def __init__(self, *, max_size: int) -> None:
        self._max_size = max_size
        self._reader = Unstuffer()
        self._parts: list[bytes] = []

    @property
    def oversize(self) -> bool:
        """More than `max_size` octets have come; the content is lost, the end is still found."""
        return self._reader.size > self._max_size

    def take(self, chunk: bytes) -> bytes | None:
        """Add a chunk; at the end of data return what follows it in the chunk, else None."""
        part = self._reader.feed(chunk)
        if self.oversize:
            self._parts.clear()
        else:
            self._parts.append(part)
        return self._reader.rest if self._reader.done else None

    def content(self) -> bytes:
        """The message, after `take` found its end; b"" if it was too large."""
        return b"".join(self._parts)


class ChunkCollector:
    """Takes the octets that each BDAT command announces (RFC 3030); keeps at most `max_size` of them."""

    __slots__ = ("_left", "_max_size", "_parts", "_size")

    def __init__(self, *, max_size: int) -> None:
        self._max_size = max_size
        self._left = 0
        self._size = 0
        self._parts: list[bytes] = []

    @property
    def oversize(self) -> bool:
        """More than `max_size` octets were announced; the content is lost."""
        return self._size > self._max_size

    def expect(self, octets: int) -> None:
        """A chunk of so many octets begins."""
        self._left = octets
        self._size += octets
        if self.oversize:
            self._parts.clear()

    def take(self, octets: bytes) -> bytes | None:
        """Add octets; at the end of the chunk return what follows it, else None."""
        part = octets[: self._left]
        self._left -= len(part)
        if not self.oversize:
            self._parts.append(part)
        return None if self._left else octets[len(part) :]

    def content(self) -> bytes:
        """All chunks so far; b"" if they were too large."""
        return b"".join(self._parts)
