"""One HTTP request to a service beside the server, within limits of time and size.

Every request has a connection of its own: the service is near, and a message costs it far more. Raises
ServiceFailed for whatever is not a whole answer with status 200.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from mqcd.core.errors import ConfigError, MqcdError

MAX_ANSWER = 1 << 20
_STEP = 1 << 16


class ServiceFailed(MqcdError):
    """The service gave no usable answer. Fault: the service, or the way to it."""


class BadUrl(ConfigError):
    """Not an http URL of a host. Fault: the configuration."""


class Service:
    """One URL of one host."""

    def __init__(self, url: str) -> None:
        """Raises BadUrl."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if (
            parts.scheme != "http"
            or not parts.hostname
            or parts.query
            or parts.fragment
            or "@" in parts.netloc
        ):
            raise BadUrl(f"{url!r} does not fit: expected an URL such as http://127.0.0.1:11333")
        self._host = parts.hostname
        self._port = port or 80
        self._name = parts.netloc
        self._path = parts.path.rstrip("/")

    async def post(self, path: str, headers: Sequence[tuple[str, str]], body: bytes, ms: int) -> bytes:
        """The body of the answer. Raises ServiceFailed, after `ms` milliseconds at the latest."""
        lines = [f"POST {self._path}{path} HTTP/1.1", f"Host: {self._name}", "Connection: close"]
        lines += [f"{name}: {_inline(value)}" for name, value in headers]
        lines += [f"Content-Length: {len(body)}", "", ""]
        try:
            async with asyncio.timeout(ms / 1000):
                answer = await self._exchange("\r\n".join(lines).encode("utf-8", "replace"), body)
        except TimeoutError:
            raise ServiceFailed(f"no answer within {ms} ms") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ServiceFailed(str(error) or type(error).__name__) from error
        return _body(answer)

    async def _exchange(self, head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(head)
            writer.write(body)
            # A service may answer, and close, before it has read everything.
            with suppress(ConnectionError):
                await writer.drain()
            answer = b""
            while part := await reader.read(_STEP):
                answer += part
                if len(answer) > MAX_ANSWER:
                    raise ServiceFailed(f"its answer has more than {MAX_ANSWER} octets")
            return answer
        finally:
            writer.transport.abort()


def _inline(value: str) -> str:
    """A header's value: no line ends, which would begin another header."""
    return "".join(char if char.isprintable() else "?" for char in value)


def _body(answer: bytes) -> bytes:
    head, end, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    words = status.split(b" ", 2)
    if not end or len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise ServiceFailed("its answer is not HTTP, or was cut off")
    if words[1] != b"200":
        raise ServiceFailed(f"its answer has status {words[1][:10].decode('latin-1')}")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)
    }
    if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
        raise ServiceFailed("its answer is chunked, which is not understood")
    length = headers.get(b"content-length")
    if length is not None and length != b"%d" % len(body):
        raise ServiceFailed("its answer was cut off")
    return body
