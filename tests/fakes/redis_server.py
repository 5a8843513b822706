"""A real redis-server on a socket and in a directory of its own; it can be killed and started again."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

_STARTS_S = 60


class RedisServer:
    """Syncs its append-only file always, unless other `settings` are given."""

    def __init__(self, path: Path, *settings: str, inside: Sequence[str] = ()) -> None:
        """`inside`: how its command begins."""
        command = shutil.which("redis-server")
        if command is None:
            pytest.skip("no redis-server on this machine")
        self._command = [*inside, command]
        self._path = path
        self._settings = settings or ("--appendonly", "yes", "--appendfsync", "always")
        # The name of a socket is short; that of a test's directory may not be.
        self._short = tempfile.TemporaryDirectory(prefix="mqcd-redis-")
        self._process: subprocess.Popen[bytes] | None = None
        path.mkdir(exist_ok=True)
        self.start()

    @property
    def url(self) -> str:
        return f"unix://{self._short.name}/socket"

    def client(self) -> redis.Redis:
        """Waits while the server starts."""
        errors = (redis.ConnectionError, redis.BusyLoadingError)
        retry = Retry(ConstantBackoff(0.01), _STARTS_S * 100)
        return redis.Redis.from_url(self.url, retry=retry, retry_on_error=list(errors))

    def start(self) -> None:
        words = [*self._command, "--port", "0", "--unixsocket", f"{self._short.name}/socket", "--save", ""]
        words += ["--dir", str(self._path), "--logfile", str(self._path / "log"), *self._settings]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        with self.client() as client:
            client.ping()

    def kill(self) -> None:
        """Kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        self.kill()
        self._short.cleanup()
