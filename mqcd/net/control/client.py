"""Asks a running server over its control socket, for the commands. Blocks."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from mqcd.core.errors import DecodeError, MqcdError
from mqcd.net.control.socket_file import way_by

ASK_S = 600.0
"""How long a server may take that changes something, or reads its queue."""


class NoAnswer(MqcdError):
    """No mail server answers there. Fault: the server's, or of the path given."""


class NoAccess(NoAnswer):
    """This user may not connect to the control socket."""


class Refusal(MqcdError):
    """The server refuses what is asked, and says why."""


class Control:
    """One control socket, by its path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, path: str, seconds: float) -> tuple[int, str]:
        """A page: status and body. Raises NoAnswer, NoAccess."""
        return self._ask("GET", path, None, seconds)

    def post(self, path: str, fields: Mapping[str, object], seconds: float) -> tuple[int, str]:
        """Ask for a change: status and body. Raises NoAnswer, NoAccess."""
        return self._ask("POST", path, json.dumps(fields).encode(), seconds)

    def ask(self, path: str, fields: Mapping[str, object] | None = None, seconds: float = ASK_S) -> str:
        """The text of a good answer; `fields` ask for a change.

        Raises NoAnswer, NoAccess, DecodeError for what is asked wrongly."""
        status, text = self.get(path, seconds) if fields is None else self.post(path, fields, seconds)
        if status == HTTPStatus.BAD_REQUEST:
            raise DecodeError(text.strip())
        if status != HTTPStatus.OK:
            raise NoAnswer(f"the server says: {text.strip()}")
        return text

    def post_for_octets(self, path: str, fields: Mapping[str, object], seconds: float) -> tuple[int, bytes]:
        """The same where the body is no text."""
        return self._ask_for_octets("POST", path, json.dumps(fields).encode(), seconds)

    @contextmanager
    def follow(self, path: str) -> Iterator[Iterator[bytes]]:
        """The lines of a live page, as they come, until it ends or the context does.

        Raises NoAnswer, NoAccess, Refusal."""
        connection = _Connection(self.path, None)
        try:
            with self._reached():
                connection.request("GET", path, headers={"Accept": "application/x-ndjson"})
                answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise Refusal(answer.read().decode("utf-8", "replace").strip())
            yield iter(answer.readline, b"")
        finally:
            connection.close()

    def _ask(self, method: str, path: str, body: bytes | None, seconds: float) -> tuple[int, str]:
        status, octets = self._ask_for_octets(method, path, body, seconds)
        return status, octets.decode("utf-8", "replace")

    def _ask_for_octets(
        self, method: str, path: str, body: bytes | None, seconds: float
    ) -> tuple[int, bytes]:
        connection = _Connection(self.path, seconds)
        try:
            with self._reached():
                return _asked(connection, method, path, body)
        finally:
            connection.close()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Failures of the connection as errors for people."""
        try:
            yield
        except PermissionError as error:
            text = f"{self.path}: {error.strerror}: only the server's user and group may connect"
            raise NoAccess(text) from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NoAnswer(f"no server runs at {self.path}") from error
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"no server answers at {self.path}: {why(error)}") from error


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> tuple[int, str]:
    """Status and body. Raises OSError, HTTPException."""
    status, octets = _asked(connection, method, path, body)
    return status, octets.decode("utf-8", "replace")


def _asked(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
) -> tuple[int, bytes]:
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def why(error: Exception) -> str:
    """The reason of a failure to connect, in a few words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """What a socket connects to, for as long as the context lasts. Raises OSError.

    By a descriptor: the path may be long, and a link that its owner has put there is not followed.
    """
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise ConnectionError(None, "not a socket")
        yield str(way_by(fd, path))
    finally:
        os.close(fd)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, seconds: float | None) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with address_of(self._path) as address:
            self.sock.connect(address)
