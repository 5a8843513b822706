"""The process that does a scan: it takes a snapshot, sends the records that match, and waits while nobody
wants more. Or it answers one question about a snapshot.

One is started for each scan (see `scanning`), so it imports no more than reading takes: asyncio alone would
be a third of its start.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from mqcd.core.errors import MqcdError
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.queue.helper import pipe
from mqcd.queue.reading.listing import Question
from mqcd.queue.reading.snapshot import Snapshot

_NICE = 10

Request = tuple[Path, Path, Selection]
"""Queue root, spool root, and which recipients."""
Answer = bytes | int | Exception | object
"""Texts of the records that were read at once, a line each; at the end how many were damaged, or why there
are no more. Of a question what it gave."""


def _text(text: str, _begun: bool) -> str:
    return text


def scan(disk: Disk, request: Request | Question, send: Callable[[Answer], None]) -> None:
    """The process's work. Raises ConnectionError from `send` when nobody wants more."""
    try:
        with contextlib.closing(Snapshot(disk, request[0], request[1])) as snapshot:
            if isinstance(request, Question):
                answer = request.work(snapshot)
                send(snapshot.unreadable.error or answer)
                return
            for texts in snapshot.project(request[2], _text):
                send("\n".join(texts).encode())
            # What cannot be read now is asked for again, what is damaged is not.
            send(snapshot.unreadable.error or snapshot.unreadable.records)
    except ConnectionError:
        raise
    except (OSError, MqcdError) as error:
        send(error)


def _work(channel: pipe.Channel) -> None:
    os.nice(_NICE)
    request = channel.receive()
    if request is not None:
        scan(Disk(), request, channel.send)


if __name__ == "__main__":
    sys.exit(pipe.serve(sys.argv[1:], _work))
