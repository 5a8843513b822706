"""Stores of all kinds for a server: an element of its configuration, with the server that the store needs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fakes import postgres_server, s3_server
from tests.fakes.redis_server import RedisServer

_LEASE = "<lease_ms>5s</lease_ms>"
"""A node that is late, as all are on a busy machine, loses its mail."""
_LONG_LEASE = "<lease_ms>10s</lease_ms>"
"""Where the server of the tests is slow."""


@contextmanager
def store_element(kind: str, path: Path) -> Iterator[str]:
    """An empty store; `path`: an empty directory."""
    if kind == "redis":
        redis = RedisServer(path / "redis")
        yield f'<store class="redis"><url>{redis.url}</url>{_LEASE}</store>'
        redis.stop()
    else:
        yield f'<store class="{kind}">{_settings(kind)}</store>'


def _settings(kind: str) -> str:
    name = uuid.uuid4().hex
    match kind:
        case "postgres":
            return f"<url>{postgres_server.shared_server().url}</url><schema>s{name}</schema>{_LEASE}"
        case "s3":
            bucket = f"<bucket>{s3_server.BUCKET}</bucket><prefix>{name}/</prefix>"
            place = f"<endpoint>{s3_server.shared_server().url}</endpoint><region>us-east-1</region>"
            return f"{bucket}{place}{_LONG_LEASE}"
        case "files":
            return "<env_dir>%DIRVAR%/mail</env_dir>"
        case "memory":
            return ""
        case _:
            return "<rootpath>%DIRVAR%/mail</rootpath>"
