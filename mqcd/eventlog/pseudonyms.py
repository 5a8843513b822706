"""Mail addresses replaced by a keyed hash, for an event log without addresses. Pure.

HMAC-SHA-256 of the address in UTF-8, its domain in comparable form; the first 16 octets, in lower-case hex.
The same address and key give the same hash on every machine and over restarts; without the key no reader can
try addresses. The local part counts as it is written: only its own host knows whether case matters (RFC 5321,
2.4).
"""

from __future__ import annotations

import hmac
import re
from dataclasses import field
from functools import lru_cache

from mqcd.core.address import normal_domain
from mqcd.core.value import value

MIN_KEY = 16
"""Octets of a key: fewer could be tried."""
_OCTETS = 16
_ENDS = r"\s<>()\[\],;:\"'`|"
_LIKE_AN_ADDRESS = re.compile(
    rf'(?:"(?:[^"\\]|\\.)+"|(?<![^{_ENDS}@])[^{_ENDS}@]+)@(?:\[[^\]\s]+\]|[^{_ENDS}@]*[^{_ENDS}@.])'
)
"""Text in a reply that looks like an address: peers also quote addresses that they rewrote."""
_QUOTED_PAIR = re.compile(r"\\(.)")


@value(kw_only=False)
class Pseudonyms:
    """The pseudonyms of one key."""

    key: bytes = field(repr=False)

    def address(self, address: str) -> str:
        """The hash in place of an address, or of a login name; the null reverse-path stays what it is."""
        return _hashed(self.key, address) if address else ""

    def text(self, text: str, *addresses: str) -> str:
        """A reply's text without addresses: the given ones, their local parts standing alone, and other text
        that looks like one are replaced."""
        for address in filter(None, addresses):
            text = self._without(text, address)
        if "@" in text:
            text = _LIKE_AN_ADDRESS.sub(lambda found: self.address(found[0]), text)
        return text

    def _without(self, text: str, address: str) -> str:
        local, _, _ = address.rpartition("@")
        bare = _QUOTED_PAIR.sub(r"\1", local[1:-1]) if local.startswith('"') else local
        lower = text.lower()
        hashed = self.address(address)
        if address.lower() in lower:
            text = _whole(address).sub(hashed, text)
        # A single letter is nearly always part of the reply's own text.
        if len(bare) > 1 and bare.lower() in lower:
            text = _whole(bare).sub(hashed, text)
        return text


def _whole(words: str) -> re.Pattern[str]:
    """Matches `words` where they are not part of a longer address or word."""
    return re.compile(rf"(?<![\w+-])(?<!\w\.){re.escape(words)}(?![\w+-]|\.\w)", re.IGNORECASE)


@lru_cache(maxsize=8192)
def _hashed(key: bytes, address: str) -> str:
    local, at, domain = address.rpartition("@")
    plain = f"{local}@{normal_domain(domain)}" if at else address
    return hmac.digest(key, plain.encode("utf-8", "surrogatepass"), "sha256")[:_OCTETS].hex()
