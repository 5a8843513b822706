"""The users that a server knows now, kept up to date with their file.

* `find` never fails: an unknown name has credentials that nothing fits, and that cost as much to compare.
  They follow from the first user's hash, which is secret: a name has one salt in all processes and runs, as
  a user has.
* A file that has become unreadable or has a wrong line is logged once for each of its states; the users that
  were read before stay.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from mqcd.submit.auth.credentials import Credentials, decoy
from mqcd.submit.users.file import Version, read_users, version_of
from mqcd.submit.users.lines import BadUsers, User
from mqcd.submit.users.passwords import hash_password

log = logging.getLogger(__name__)


class Directory:
    """The users of one file. `load` and `look` may run in any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._users: Mapping[str, User] = {}
        self._version: Version | None = None
        self._key = secrets.token_bytes(32)
        self._nobody = ""
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read the file for the first time. Raises BadUsers."""
        self._nobody = self._nobody or hash_password(secrets.token_hex())
        read = read_users(self.path)
        self._users, self._version = read.users, read.version
        for first in islice(read.users.values(), 1):
            self._key = hashlib.sha256(first.hash.encode()).digest()

    def look(self) -> None:
        """Read the file again if it has changed; an error is logged, and the old users stay."""
        with self._lock:
            version = version_of(self.path)
            if version == self._version:
                return
            try:
                self.load()
            except BadUsers as error:
                self._version = version
                log.error("the old users stay: %s", error)
            else:
                log.info("%d users read from %s", len(self._users), self.path)

    def __contains__(self, name: str) -> bool:
        return name in self._users

    def find(self, name: str) -> Credentials:
        """What a login as `name` is compared with."""
        nothing = decoy(name, self._key, self._nobody)
        user = self._users.get(name)
        if user is None:
            return nothing
        return Credentials(
            hash=user.hash,
            scram=user.scram or nothing.scram,
            plain=nothing.plain if user.plain is None else user.plain,
        )
