"""Events to a URL: a signed POST of JSON for each portion. A reply 2xx takes it; redirects are not followed.

    {"webhook": "crm", "events": [{"v": 1, "id": "node/0/17", "event": "delivered", ...}, ...]}

Certificates of https are verified. The secret's file is read for each portion, so a new secret needs no
restart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from email.utils import parsedate_to_datetime

import httpx

from mqcd.config.settings import WebhookSettings
from mqcd.core.errors import ConfigError
from mqcd.core.ports import Clock
from mqcd.disk.durable import Disk, describe
from mqcd.feeds.signing import FIELD, secrets_of, signature
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
        except httpx.HTTPError as error:
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
