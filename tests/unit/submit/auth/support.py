"""Users and contexts for the tests of logins."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from mqcd.submit.auth.credentials import Credentials, decoy, scram_keys
from mqcd.submit.auth.steps import Context

SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
USERS = {
    # RFC 7677, 3
    "user": Credentials(
        hash="", scram=scram_keys("pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096), plain="pencil"
    ),
    # RFC 2195, 2
    "tim": Credentials(hash="", scram=scram_keys("x", b"salt", 4096), plain="tanstaaftanstaaf"),
    "a,b=c": Credentials(hash="", scram=scram_keys("comma", b"salt", 4096), plain="comma"),
}


def find(name: str) -> Credentials:
    return USERS.get(name) or decoy(name, b"key", "")


def context(**changes: Any) -> Context:
    changes.setdefault("nonce", lambda: SERVER_NONCE)
    return Context(find=find, **changes)
