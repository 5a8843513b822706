"""`mqcd sendmail`, also under the names `sendmail` and `mailq`: takes a message and returns once it is safe.

The message goes to the server's socket. Where no server answers there, or it cannot take mail now, it goes
into the maildrop, and the server takes it up later. After a connection that breaks behind the final dot
both may have it: it is then sent twice rather than lost.

Exit codes are those of sysexits.h: 0 taken; 64 command line; 65 message; 67 recipient; 69 refused; 75 not
taken, try again; 77 no right to send as this sender.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mqcd.sendmail.arguments import LIST, NOTHING, SMTP, Asked, BadUsage, parse

if TYPE_CHECKING:
    import socket

    from mqcd.sendmail.letter import Letter

OK, USAGE, DATA_ERROR, NO_USER, UNAVAILABLE, TRY_AGAIN, NO_PERMISSION = 0, 64, 65, 67, 69, 75, 77
SOCKET, MAILDROP = "submit.sock", "maildrop"
_CODES = (("5.7.", NO_PERMISSION), ("5.1.", NO_USER), ("5.3.4", DATA_ERROR), ("5.6.", DATA_ERROR))
"""Exit codes by the beginning of the enhanced status code (RFC 3463)."""

_AT_ONCE = 1 << 16
"""Octets that -bs passes on at once."""
_LINE = 4096
"""No line of a reply has more octets."""

Commands = Callable[[list[str]], int]
"""Runs a line of mqcd's own commands; gives the exit code."""


def called(program: str, words: Sequence[str]) -> list[str] | None:
    """The words of sendmail in a command line of mqcd; None for another command.

    `program` is the name that it was called by; `mailq` stands for `sendmail -bp`.
    """
    name = program.rpartition("/")[2]
    if name == "mailq" or words[:1] == ["mailq"]:
        return ["-bp", *(words if name == "mailq" else words[1:])]
    if name == "newaliases":
        return ["-bi"]
    if name == "sendmail":
        return list(words)
    return list(words[1:]) if words[:1] == ["sendmail"] else None


def run(words: Sequence[str], commands: Commands) -> int:
    """Run the command; gives the exit code."""
    try:
        asked = parse(words)
    except BadUsage as error:
        return _fail(USAGE, str(error))
    if asked.mode == NOTHING:
        return OK
    if asked.mode == LIST or asked.flush:
        line = ["queue", "ls"] if asked.mode == LIST else ["queue", "retry"]
        place = [word for pair in (("-c", asked.conf), ("--var", asked.var)) if pair[1] for word in pair]
        return commands([*place, *line, *(word for flag in asked.chosen.items() for word in flag)])
    if asked.mode == SMTP:
        return _speak(_directory(asked))
    return _send(asked)


def _directory(asked: Asked) -> Path:
    """%DIRVAR%, by the rule of all commands."""
    if named := asked.var or os.environ.get("MQCD_VAR"):
        return Path(named)
    conf = Path(asked.conf or os.environ.get("MQCD_CONF") or "conf/mqcd.xml")
    return conf.absolute().parent.parent / "var"


def _send(asked: Asked) -> int:
    import pwd

    from mqcd.sendmail.letter import BadLetter, make_letter

    uid = os.geteuid()
    user, full_name = str(uid), ""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        # Its number is its name, for the server too.
        pass
    else:
        user = entry.pw_name
        full_name = entry.pw_gecos.partition(",")[0].replace("&", user.capitalize())
    if not asked.recipients and not asked.from_header:
        return _fail(USAGE, "no recipients: name them, or give -t")
    try:
        letter = make_letter(asked, sys.stdin.buffer.read(), user=user, full_name=full_name)
    except BadLetter as error:
        return _fail(DATA_ERROR, str(error))
    return _hand_over(_directory(asked), letter, user, verbose=asked.verbose)


def _hand_over(directory: Path, letter: Letter, user: str, *, verbose: bool) -> int:
    from mqcd.sendmail.exchange import Busy, Refused, submit

    try:
        with connect(directory / SOCKET) as connection:
            taken = submit(connection, letter, user, _show if verbose else None)
    except Refused as error:
        return _fail(_code(error.answer.text), str(error))
    except (Busy, OSError) as error:
        return _leave(directory, letter, error)
    for recipient, answer in taken.refused:
        _fail(0, f"{recipient}: {answer}")
    return _code(taken.refused[0][1].text) if taken.refused else OK


def _show(line: str) -> None:
    """Print a line of the dialogue. An output that takes none is not the connection, which goes on."""
    try:
        print(line, flush=True)
    except (OSError, ValueError):
        # Also for what is left in it, which would be the exit code.
        sys.stdout = io.StringIO()


def _leave(directory: Path, letter: Letter, why: Exception) -> int:
    """Put it into the maildrop."""
    from mqcd.disk.durable import describe
    from mqcd.net.clock import SystemClock
    from mqcd.sendmail.maildrop import drop

    try:
        drop(directory / MAILDROP, letter, SystemClock().now())
    except OSError as error:
        said = describe(why) if isinstance(why, OSError) else str(why)
        text = f"not sent. The server: {said}. The maildrop: {describe(error)}"
        if isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
            text += (
                ". Name the server's directory by --var or MQCD_VAR, or start it once: it makes its maildrop"
            )
        return _fail(TRY_AGAIN, text)
    return OK


def connect(path: Path) -> socket.socket:
    """A connection to the server's socket. Raises OSError."""
    import socket

    from mqcd.sendmail.exchange import SECONDS

    # By its directory's descriptor: a socket's own path may have 107 octets only.
    around = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(SECONDS)
            connection.connect(f"/proc/self/fd/{around}/{path.name}")
        except OSError as error:
            connection.close()
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        os.close(around)
    return connection


def _speak(directory: Path) -> int:
    """-bs: the socket's SMTP on standard input and output."""
    try:
        connection = connect(directory / SOCKET)
    except OSError as error:
        _show("421 4.3.2 No mail server is running, try again later\r")
        return _fail(TRY_AGAIN, f"{error.filename}: {error.strerror}")
    try:
        with connection:
            _relay(connection, sys.stdin.fileno(), sys.stdout.fileno())
    except OSError as error:
        return _fail(TRY_AGAIN, f"the dialogue broke off: {error.strerror or error}")
    return OK


def _relay(connection: socket.socket, source: int, target: int) -> None:
    """Pass octets both ways until the server closes. Replies are read while commands wait to be sent: the
    server may wait, too. Raises OSError, also where the server closes too early (see `_check_end`)."""
    import selectors
    import socket

    connection.setblocking(False)
    waiting, asked, said, ended = b"", b"", b"", False
    # Unlike epoll, poll takes regular files.
    with selectors.PollSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(source, selectors.EVENT_READ)
        while True:
            for key, events in selector.select():
                if key.fileobj is not connection:
                    selector.unregister(source)
                    if waiting := os.read(source, _AT_ONCE):
                        asked = (asked + waiting)[-_LINE:]
                        selector.modify(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
                    else:
                        connection.shutdown(socket.SHUT_WR)
                        ended = True
                    continue
                if events & selectors.EVENT_READ:
                    octets = connection.recv(_AT_ONCE)
                    if not octets:
                        _check_end(asked, said, ended=ended)
                        return
                    said = (said + octets)[-_LINE:]
                    while octets:
                        octets = octets[os.write(target, octets) :]
                if events & selectors.EVENT_WRITE:
                    waiting = waiting[connection.send(waiting) :]
                    if not waiting:
                        selector.modify(connection, selectors.EVENT_READ)
                        selector.register(source, selectors.EVENT_READ)


def _check_end(asked: bytes, said: bytes, *, ended: bool) -> None:
    """The server, asked and saying this last, has closed: by QUIT, or as the input has `ended` without one
    and no DATA waits for its reply. Else raises OSError: a content may be lost. BDAT is not looked for."""
    last_reply = said.rstrip().rpartition(b"\n")[2][:3]
    quits = asked.rpartition(b"\n")[0].rpartition(b"\n")[2].strip().upper() == b"QUIT"
    if last_reply != b"221" and (quits or not ended or last_reply in (b"", b"354", b"421")):
        raise ConnectionError("the server went away")


def _code(text: str) -> int:
    return next((code for start, code in _CODES if text.startswith(start)), UNAVAILABLE)


def _fail(code: int, text: str) -> int:
    with suppress(OSError):
        print(f"sendmail: {text}", file=sys.stderr)
    return code
