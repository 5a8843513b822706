"""SCRAM-SHA-256 and SCRAM-SHA-256-PLUS, the server's side (RFC 5802, RFC 7677). Pure.

The client chooses among the types of channel binding (`binding`) that its connection has. One that says that
the server has no channel binding ("y") where it was offered has been shown another list of mechanisms than
ours: that is a downgrade, and fails.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from binascii import Error, a2b_base64

from mqcd.core.errors import DecodeError
from mqcd.submit.auth.saslprep import saslprep
from mqcd.submit.auth.steps import MALFORMED, Cause, Challenge, Context, Failure, Step, Success

_GS2 = re.compile(r"(n|y|p=([A-Za-z0-9.\-]+)),(?:a=([^,\0]+))?,")
# A mandatory extension (m=) is none that is known here: it fails by not being n=.
_FIRST = re.compile(r"n=([^,\0]+),r=([!-+\--~]{1,512})(?:,[A-Za-z]=[^,\0]+)*")
_FINAL = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([!-+\--~]+)(?:,[A-Za-z]=[^,\0]+)*),p=([A-Za-z0-9+/=]+)")
_ESCAPE = re.compile(r"=(2C|3D)?")


class Scram:
    """One exchange."""

    def __init__(self, context: Context, *, plus: bool) -> None:
        self._context = context
        self._plus = plus
        self._take = self._first
        self._user = ""
        self._header = b""
        self._binding = b""
        self._nonce = ""
        self._signed = ""
        """client-first-bare and server-first, with commas."""

    def begin(self) -> Challenge:
        """The client speaks first."""
        return Challenge(b"")

    def step(self, response: bytes) -> Step:
        """Take the client's next message."""
        try:
            return self._take(response)
        except (DecodeError, UnicodeDecodeError, Error):
            return MALFORMED

    def _first(self, response: bytes) -> Step:
        text = response.decode()
        gs2 = _GS2.match(text)
        bare = text[gs2.end() :] if gs2 is not None else ""
        message = _FIRST.fullmatch(bare)
        if gs2 is None or message is None:
            return MALFORMED
        self._user = user = saslprep(_unescape(message[1]))
        other = gs2[3] is not None and saslprep(_unescape(gs2[3])) != user
        if other or not self._binds(gs2[1], gs2[2]):
            return Failure(Cause.CREDENTIALS, user)
        self._header = gs2[0].encode()
        self._nonce = message[2] + self._context.nonce()
        keys = self._context.find(user).scram
        first = f"r={self._nonce},s={b64encode(keys.salt).decode()},i={keys.iterations}"
        self._signed = f"{bare},{first}"
        self._take = self._final
        return Challenge(first.encode())

    def _binds(self, flag: str, kind: str | None) -> bool:
        if self._plus:
            self._binding = self._context.bindings.get(kind or "", b"")
            return bool(self._binding)
        return flag == "n" or (flag == "y" and not self._context.plus_offered)

    def _final(self, response: bytes) -> Step:
        message = _FINAL.fullmatch(response.decode())
        if message is None:
            return MALFORMED
        bound = a2b_base64(message[2], strict_mode=True)
        proof = a2b_base64(message[4], strict_mode=True)
        keys = self._context.find(self._user).scram
        signed = f"{self._signed},{message[1]}".encode()
        signature = hmac.digest(keys.stored, signed, "sha256")
        good = (
            hmac.compare_digest(bound, self._header + self._binding)
            & hmac.compare_digest(message[3].encode(), self._nonce.encode())
            & _proves(proof, signature, keys.stored)
        )
        if not good:
            return Failure(Cause.CREDENTIALS, self._user)
        self._take = self._last
        return Challenge(b"v=" + b64encode(hmac.digest(keys.server, signed, "sha256")))

    def _last(self, response: bytes) -> Step:
        # SMTP has no room for data beside 235: the client acknowledges our signature (RFC 4954, 4).
        return MALFORMED if response else Success(self._user)


def _proves(proof: bytes, signature: bytes, stored: bytes) -> bool:
    if len(proof) != len(signature):
        return False
    client = bytes(mine ^ theirs for mine, theirs in zip(signature, proof, strict=True))
    return hmac.compare_digest(hashlib.sha256(client).digest(), stored)


def _unescape(name: str) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[1] is None:
            raise DecodeError("a name has = only in =2C and =3D")
        return "," if found[1] == "2C" else "="

    return _ESCAPE.sub(replace, name)
