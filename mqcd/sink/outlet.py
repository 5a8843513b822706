"""Outputs of the command `sink`: a directory, standard output, both or neither.

What is printed and indexed: JSON objects, one a line, or sentences for people.

* A message: `event` "message" (printed only), `file` (or null), `sender` ("" = null), `recipients`, `size`
  (octets), `at` (RFC 3339, UTC, ms), `helo`, and where the client gave any `dsn` and `recipient_dsn` (a list
  with one text for each recipient).
* A refused recipient: `event` "refused", `sender`, `recipient`, `reply`, `at`, `helo`.

In the directory, `<ms>-<n>.eml` holds the content octet for octet as received, dot-stuffing undone, and
`index.jsonl` has one line for each, written after its file. A file that exists is never written over, so a
directory can serve several runs. Nothing is synced: this is for tests, not for mail that matters.

`Outlet.received` and `Outlet.refused` are callbacks for `server.start`. OSError from the store is passed on,
on which the sink replies 451, and nothing is shown.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from mqcd.core.events import format_time
from mqcd.sink.outputs import Received, Refused

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


class Outlet:
    """Stores messages, and shows them and refused recipients.

    `show` takes whole lines, newline included; `as_json` chooses JSON objects over sentences.
    """

    def __init__(
        self,
        *,
        store: MessageStore | None = None,
        show: Callable[[str], object] | None = None,
        as_json: bool = False,
    ) -> None:
        self._store = store
        self._print = show
        self._as_json = as_json

    def received(self, message: Received) -> None:
        """Keep the message, then show it. Raises OSError."""
        file = self._store.keep(message) if self._store else None
        if self._print is None:
            return
        if self._as_json:
            fields = {"event": "message", **message_fields(message, file=file)}
            self._print(to_line(fields))
        else:
            self._print(message_sentence(message, file=file))

    def refused(self, refused: Refused) -> None:
        if self._print is None:
            return
        if self._as_json:
            fields = {"event": "refused", **refused_fields(refused)}
            self._print(to_line(fields))
        else:
            self._print(refused_sentence(refused))


def to_line(fields: Mapping[str, object]) -> str:
    """One JSON object as a line, newline included; ASCII only, so that any terminal shows it."""
    return json.dumps(fields, separators=(",", ":")) + "\n"


def message_fields(message: Received, *, file: str | None) -> dict[str, object]:
    """A message, as the index and `--json` show it; `file` is where it was stored, if it was."""
    fields: dict[str, object] = {
        "file": file,
        "sender": message.sender,
        "recipients": message.recipients,
        "size": len(message.content),
        "at": format_time(message.at_ms),
        "helo": message.helo,
    }
    if message.dsn or message.recipient_dsn:
        fields |= {"dsn": message.dsn, "recipient_dsn": message.recipient_dsn}
    return fields


def refused_fields(refused: Refused) -> dict[str, object]:
    """A refused recipient, as `--json` shows it."""
    return {
        "sender": refused.sender,
        "recipient": refused.recipient,
        "reply": refused.reply,
        "at": format_time(refused.at_ms),
        "helo": refused.helo,
    }


def message_sentence(message: Received, *, file: str | None) -> str:
    """A message, for people, newline included."""
    recipients = " ".join(f"<{_shown(recipient)}>" for recipient in message.recipients)
    place = f" in {file}" if file else ""
    return (
        f"{format_time(message.at_ms)} took {len(message.content)} octets "
        f"from <{_shown(message.sender)}> to {recipients}{place}\n"
    )


def refused_sentence(refused: Refused) -> str:
    """A refused recipient, for people, newline included."""
    return (
        f"{format_time(refused.at_ms)} refused <{_shown(refused.recipient)}> "
        f"from <{_shown(refused.sender)}>: {refused.reply}\n"
    )


def _shown(address: str) -> str:
    """The address without what could drive a terminal: a client chose it."""
    return "".join(c if c.isprintable() else "?" for c in address)
