"""The client's side of the SASL mechanisms, as the RFCs have it."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

from mqcd.core.errors import DecodeError


class ScramClient:
    """SCRAM-SHA-256, with a channel binding if one is given."""

    def __init__(
        self,
        user: str,
        password: str,
        *,
        nonce: str = "rOprNGfwEbeRWgbNEkqO",
        flag: str = "n",
        binding: bytes = b"",
        identity: str = "",
    ) -> None:
        self._password = password
        self._nonce = nonce
        self._header = f"{flag},{'a=' + identity if identity else ''},".encode()
        self._binding = binding
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return self._header + self._bare.encode()

    def final(self, challenge: bytes) -> bytes:
        nonce, salt, rounds = (part.partition("=")[2] for part in challenge.decode().split(","))
        if not nonce.startswith(self._nonce):
            raise DecodeError("the server's nonce is not ours")
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), b64decode(salt), int(rounds))
        key = hmac.digest(salted, b"Client Key", "sha256")
        without = f"c={b64encode(self._header + self._binding).decode()},r={nonce}"
        signed = f"{self._bare},{challenge.decode()},{without}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{without},p={b64encode(proof).decode()}".encode()

    def trusts(self, challenge: bytes) -> bool:
        """Whether the server has proved that it has the keys."""
        return challenge == b"v=" + b64encode(self._signature)
