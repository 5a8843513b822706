"""A real PostgreSQL in a directory of its own, on a socket there; it can be killed and started again.

It refuses to run as root: then it runs as nobody.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

_NOBODY = 65534
_DEBIAN = Path("/usr/lib/postgresql")


def _command(name: str) -> str:
    versions = sorted(_DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which(name)
    if found is None:
        pytest.skip("no PostgreSQL on this machine")
    return found


class PostgresServer:
    """As its defaults are: it syncs each commit."""

    def __init__(self) -> None:
        self._initdb, self._postgres = _command("initdb"), _command("postgres")
        self._directory = Path(tempfile.mkdtemp(prefix="mqcd-pg-"))
        self._user: dict[str, Any] = {}
        if not os.getuid():
            self._user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
            os.chown(self._directory, _NOBODY, _NOBODY)
        self._process: subprocess.Popen[bytes] | None = None
        self._run(self._initdb, "-D", "data", "-U", "mqcd", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self.start()

    def _run(self, *words: str) -> None:
        subprocess.run(words, cwd=self._directory, check=True, stdout=subprocess.DEVNULL, **self._user)

    @property
    def url(self) -> str:
        return f"postgresql://mqcd@/postgres?host={self._directory}"

    def start(self) -> None:
        """Return once it answers."""
        words = [self._postgres, "-D", "data", "-k", str(self._directory), "-c", "listen_addresses="]
        self._process = subprocess.Popen(
            words,
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            **self._user,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if b"ready to accept connections" in line:
                break
        # What it writes later must not fill the pipe.
        self._drain = subprocess.Popen(["cat"], stdin=self._process.stderr, stdout=subprocess.DEVNULL)
        self._process.stderr.close()

    def kill(self) -> None:
        """Kill -9 of it and its processes, as the machine would."""
        if self._process is None:
            return
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self._process.pid)],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split()
        self._process.kill()
        self._process.wait()
        for child in children:
            try:
                os.kill(int(child), 9)
            except ProcessLookupError:
                continue
        self._drain.wait()
        self._process = None
        (self._directory / "data" / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._directory)


@cache
def shared_server() -> PostgresServer:
    """One for all tests of this process: each has a schema of its own."""
    server = PostgresServer()
    atexit.register(server.stop)
    return server


async def end_leases(url: str, schema: str) -> None:
    """As if all nodes had been gone for a while."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"UPDATE {schema}.nodes SET lease = '-infinity'")
    finally:
        await connection.close()
