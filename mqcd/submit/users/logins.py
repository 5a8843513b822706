"""What all listeners share for logins: failures; within a process also the threads and the files of users."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from mqcd.net.shared.used_rates import UsedRates
from mqcd.submit.auth.failures import PLACES, Failures
from mqcd.submit.users.checking import Checker
from mqcd.submit.users.directory import Directory


class Logins:
    """One for a process."""

    def __init__(self, failures: Failures | None = None) -> None:
        """`failures`: those of all processes, None = they are counted here alone."""
        self._failures = failures
        self._checker = Checker()
        self._directories: dict[Path, Directory] = {}

    @cached_property
    def failures(self) -> Failures:
        """Who has failed to log in."""
        return self._failures or Failures(UsedRates.alone(PLACES), UsedRates.alone(PLACES))

    def directory(self, path: Path) -> Directory:
        """The users in this file, the same for all listeners; empty until it is loaded."""
        return self._directories.setdefault(path, Directory(path))

    async def verify(self, client: str, encoded: str, password: str) -> bool:
        """Whether a prepared password fits the hash. Raises LoginsBusy."""
        return await self._checker.verify(client, encoded, password)

    def close(self) -> None:
        """End the threads."""
        self._checker.close()
