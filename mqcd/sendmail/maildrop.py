"""The maildrop: a directory for mail while no server takes it, and the form of its files.

The directory is the server's, mode 3733: any user can add a file, nobody can list the others', and the
sticky bit leaves removal to the server and the file's owner. A file's owner is the sender's user. It
belongs to the directory's group, the server's, which alone reads it (0640).

A file is one line of JSON, the envelope, and the content with its length in that line. It is written and
synced under a temporary name, then renamed, then synced again: that makes the new name durable too, for a
user may not open the directory to sync it.

    tmp-<random>          being written
    <time>-<random>.mail  to be taken
    <the same>.<SPID>     was being taken under this SPID when the server ended
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

from mqcd.core.errors import DecodeError
from mqcd.disk.durable import Disk
from mqcd.sendmail.letter import MOST, BadLetter, Letter, check_letter

MODE = 0o3733
_FILE_MODE = 0o640
TEMP, SUFFIX = "tmp-", ".mail"
_VERSION = 1
MAX_ENVELOPE = 4 << 20
"""Octets of the envelope's line."""
_TEXTS = ("sender", "notify", "returned", "envelope_id", "body")


def encode(letter: Letter) -> bytes:
    """The octets of a file."""
    envelope = {
        "v": _VERSION,
        **{name: getattr(letter, name) for name in _TEXTS},
        "author": letter.author,
        "recipients": letter.recipients,
        "size": len(letter.content),
    }
    return json.dumps(envelope, separators=(",", ":")).encode() + b"\n" + letter.content


def decode(octets: bytes) -> Letter:
    """The letter in a file. Raises DecodeError."""
    line, _, content = octets.partition(b"\n")
    if len(line) > MAX_ENVELOPE:
        raise DecodeError("an envelope without end")
    try:
        envelope = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DecodeError("its first line is no envelope") from error
    if not isinstance(envelope, dict) or envelope.get("v") != _VERSION:
        raise DecodeError("an envelope of another version")
    if envelope.get("size") != len(content):
        raise DecodeError(f"{len(content)} octets of content, not {envelope.get('size')}")
    return _letter(envelope, content)


def _letter(envelope: dict[str, object], content: bytes) -> Letter:
    texts = {name: envelope.get(name) for name in _TEXTS}
    author, recipients = envelope.get("author"), envelope.get("recipients")
    if not (
        isinstance(recipients, list)
        and (author is None or isinstance(author, str))
        and all(isinstance(each, str) for each in (*texts.values(), *recipients))
    ):
        raise DecodeError("an envelope with a value of the wrong kind")
    words = {name: str(text) for name, text in texts.items()}
    letter = Letter(**words, author=author, recipients=tuple(recipients), content=content)
    try:
        check_letter(letter)
    except BadLetter as error:
        raise DecodeError(str(error)) from error
    return letter


def drop(directory: Path, letter: Letter, now: int, disk: Disk | None = None) -> Path:
    """Put the letter into the maildrop, durably; `now` in ms. Raises OSError.

    Where the last sync fails, the server may have taken it already: a caller that tries again sends it twice,
    where one that does not could lose it.
    """
    if len(letter.content) > MOST:
        raise OSError(errno.EFBIG, f"takes messages of at most {MOST} octets", str(directory))
    octets = encode(letter)
    if len(octets) - len(letter.content) > MAX_ENVELOPE:
        text = f"takes envelopes of at most {MAX_ENVELOPE} octets: send it to fewer recipients at a time"
        raise OSError(errno.EFBIG, text, str(directory))
    disk = disk or Disk()
    unique = os.urandom(8).hex()
    temp = directory / f"{TEMP}{unique}"
    target = directory / f"{now:013d}-{unique}{SUFFIX}"
    fd = disk.create(temp)
    try:
        os.fchmod(fd, _FILE_MODE)
        disk.pwritev(fd, [octets], 0)
        disk.datasync(fd)
        disk.rename(temp, target)
        disk.sync_appended(fd)
    except OSError:
        disk.unlink(temp)
        disk.unlink(target)
        raise
    finally:
        disk.close(fd)
    return target
