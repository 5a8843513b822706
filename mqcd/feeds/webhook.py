"""Events to a URL: a signed POST of JSON for each portion. A reply 2xx takes it; redirects are not followed.

    {"webhook": "crm", "events": [{"v": 1, "id": "node/0/17", "event": "delivered", ...}, ...]}

Its signature is HMAC-SHA256 (RFC 2104) of its time and its body:

    X-mqcd-Signature: t=1795186996,v1=<64 hex digits>[,v1=<64 hex digits>]

`t` is in seconds since 1970; what is signed is `t`, a full stop, and the body. While a secret is exchanged
there are two, and a signature by each: a receiver takes a request if one of them is right.

Certificates of https are verified. The secret's file is read for each portion, so a new secret needs no
restart.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from email.utils import parsedate_to_datetime

import httpx

from mqcd.config.settings import WebhookSettings
from mqcd.core.errors import ConfigError
from mqcd.core.ports import Clock
from mqcd.disk.durable import Disk, describe
from mqcd.feeds.sink import NotTaken

_MOST_WAIT_MS = 3_600_000
"""What a receiver may ask to wait, at most."""
_MOST_DIGITS = 9
"""Of a wait in seconds; a longer number is more than the most, and Python may refuse to read it."""


class Webhook:
    """One receiver."""

    def __init__(
        self, settings: WebhookSettings, clock: Clock, disk: Disk, client: httpx.AsyncClient | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._disk = disk
        self._head = f'{{"webhook":{json.dumps(settings.name)},"events":['.encode()
        self._client = client or httpx.AsyncClient(
            timeout=settings.timeout / 1000, follow_redirects=False, trust_env=False
        )

    async def send(self, lines: Sequence[bytes]) -> None:
        """One request. Raises NotTaken."""
        body = b"".join([self._head, b",".join(lines), b"]}"])
        headers = {"Content-Type": "application/json", "User-Agent": "mqcd"}
        if (path := self._settings.secretfile) is not None:
            try:
                secrets = secrets_of(self._disk.read_file(path).decode("utf-8", "replace"), str(path))
            except ConfigError as error:
                raise NotTaken(str(error)) from error
            except OSError as error:
                raise NotTaken(f"the secret cannot be read: {describe(error)}") from error
            headers[FIELD] = signature(secrets, self._clock.now() // 1000, body)
        try:
            async with self._client.stream(
                "POST", self._settings.url, content=body, headers=headers
            ) as reply:
                # Its body is of no interest, however long it is.
                code, after = reply.status_code, reply.headers.get("Retry-After", "")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotTaken(f"{type(error).__name__}: {error}".rstrip(": ")) from error
        if not 200 <= code < 300:
            raise NotTaken(f"HTTP status {code}", self._wait(after))

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    def _wait(self, text: str) -> int:
        """Of Retry-After (RFC 9110, 10.2.3), ms."""
        if text.isdecimal():
            if len(text) > _MOST_DIGITS:
                return _MOST_WAIT_MS
            return min(int(text) * 1000, _MOST_WAIT_MS)
        try:
            until = parsedate_to_datetime(text).timestamp() * 1000
        except (ValueError, OverflowError):
            return 0
        return int(min(max(until - self._clock.now(), 0), _MOST_WAIT_MS))


FIELD = "X-mqcd-Signature"
LEAST_SECRET = 16
"""Characters of a secret, at least."""
MOST_SECRETS = 4


def signature(secrets: Sequence[bytes], at: int, body: bytes) -> str:
    """The field's value. `at`: seconds since 1970."""
    signed = f"{at}.".encode() + body
    digests = [hmac.new(secret, signed, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={at}", *(f"v1={digest}" for digest in digests)])


def secrets_of(text: str, place: str) -> Sequence[bytes]:
    """The secrets in a file: one a line, the newest first; lines that begin with # do not count.

    Raises ConfigError, which shows nothing of the text.
    """
    lines = [line.strip() for line in text.splitlines()]
    secrets = [line.encode() for line in lines if line and not line.startswith("#")]
    if not 0 < len(secrets) <= MOST_SECRETS:
        raise ConfigError(f"{place}: expected 1 to {MOST_SECRETS} secrets, one a line, found {len(secrets)}")
    if any(len(secret) < LEAST_SECRET for secret in secrets):
        raise ConfigError(
            f"{place}: a secret has {LEAST_SECRET} characters or more; make one with `openssl rand -hex 32`"
        )
    return secrets
