"""What all listeners of one process share for logins: the threads, the failures, the directories of users."""

from __future__ import annotations

from pathlib import Path

from mqcd.submit.auth.failures import Failures
from mqcd.submit.users.checking import Checker
from mqcd.submit.users.directory import Directory


class Logins:
    """One for a process."""

    def __init__(self) -> None:
        self.failures = Failures()
        self._checker = Checker()
        self._directories: dict[Path, Directory] = {}

    def directory(self, path: Path) -> Directory:
        """The users in this file, the same for all listeners; empty until it is loaded."""
        return self._directories.setdefault(path, Directory(path))

    async def verify(self, client: str, encoded: str, password: str) -> bool:
        """Whether a prepared password fits the hash. Raises LoginsBusy."""
        return await self._checker.verify(client, encoded, password)

    def close(self) -> None:
        """End the threads."""
        self._checker.close()
