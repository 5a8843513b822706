"""One server process asks another for a page, on its control socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

Asked = tuple[int, bytes]
"""Status and body; status 0 and why there is none."""


async def ask(path: Path, method: str, target: str, body: bytes, seconds: float) -> Asked:
    """A page of the process that answers at `path`."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                head = f"{method} {target} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                answer = await reader.read(-1)
            finally:
                writer.close()
    except TimeoutError:
        return 0, b"it does not answer"
    except OSError as error:
        return 0, f"it does not answer: {error.strerror or error}".encode()
    start, _, content = answer.partition(b"\r\n\r\n")
    words = start.split(b" ", 2)
    if len(words) < 3 or not words[1].isdigit():
        return 0, b"it does not answer"
    return int(words[1]), content
