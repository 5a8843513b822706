"""Messages on disk for people to look at: one .eml file each, and an index.

`DIR/<ms>-<n>.eml` holds the content octet for octet as received, dot-stuffing undone;
`DIR/index.jsonl` has one line for each, see `mqcd.sink.lines`. A file that exists is never
written over, so a directory can serve several runs. The line is written after its file. Nothing
is synced: this is for tests, not for mail that matters.

Fails with OSError, on which the sink answers 451.
"""

from pathlib import Path
from typing import BinaryIO

from mqcd.sink.lines import message_fields, to_line
from mqcd.sink.mail import Received

INDEX = "index.jsonl"


class MessageStore:
    """Writes messages into one directory, which it makes if need be."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError when the directory cannot be made or its index not be opened."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._index = (directory / INDEX).open("ab")
        self._count = 0

    def keep(self, message: Received) -> str:
        """Write the message; returns the file's name inside the directory. Raises OSError."""
        name, file = self._new_file(message.at_ms)
        try:
            with file:
                file.write(message.content)
        except OSError:
            (self._directory / name).unlink(missing_ok=True)
            raise
        line = to_line(message_fields(message, file=name))
        self._index.write(line.encode("utf-8"))
        self._index.flush()
        return name

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _new_file(self, at_ms: int) -> tuple[str, BinaryIO]:
        while True:
            self._count += 1
            name = f"{at_ms:013d}-{self._count:06d}.eml"
            try:
                return name, (self._directory / name).open("xb")
            except FileExistsError:
                # Another run at the same millisecond; the next number is free sooner or later.
                continue
