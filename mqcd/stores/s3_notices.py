"""Notices in a queue of Amazon's SQS: which node may be gone, so that nodes need not ask the object store.

A node that begins a session puts up a notice about it that no node sees before its lease may have run out. A
node that hears of a session that still lives delays its notice until the lease may run out next; a notice
about one that is gone stays, hidden for a while, until its mail has been taken. So a notice is lost neither
with the node that it is about nor with one that has heard it, and one that comes twice does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from mqcd.core.value import value
from mqcd.stores.s3_objects import ERRORS

log = logging.getLogger(__name__)

_LONGEST_DELAY_S = 900
"""What SQS delays at most: longer delays are several, one after another."""
_LISTENS_S = 20
_HIDDEN_S = 120
"""For so long others do not see a notice that one has heard."""
_REST_S = 5.0
"""After a failure."""
_FAILURES = (*ERRORS, ClientError)


@value(kw_only=False)
class Notice:
    """As it was heard."""

    session: str
    receipt: str


class Notices:
    """The queue, by its URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = None
        self._closing = AsyncExitStack()
        self._listening: asyncio.Task[None] | None = None
        self._heard: list[Notice] = []

    async def open(self, session: Any, region: str) -> None:
        """Listen from now on; `session` makes clients. Raises what they raise."""
        parts = urlsplit(self._url)
        endpoint = f"{parts.scheme}://{parts.netloc}"
        client = session.create_client("sqs", endpoint_url=endpoint, region_name=region or None)
        self._client = await self._closing.enter_async_context(client)
        await self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=["DelaySeconds"])
        self._listening = asyncio.ensure_future(self._listen())

    async def close(self) -> None:
        """Harmless when it is not open."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])
        self._client = None
        await self._closing.aclose()

    async def put_up(self, session: str, delay_s: float = 0.0) -> None:
        """A notice about a session. A failure is logged: nodes look for themselves now and then."""
        delay = min(_LONGEST_DELAY_S, max(0, round(delay_s)))
        try:
            await self._client.send_message(QueueUrl=self._url, MessageBody=session, DelaySeconds=delay)
        except _FAILURES as error:
            log.warning("a notice cannot be put up: %s", error)

    def heard(self) -> Sequence[Notice]:
        """What has come since the last call."""
        heard, self._heard = self._heard, []
        return heard

    async def take_down(self, notices: Sequence[Notice]) -> None:
        """They are done with. After a failure they come again."""
        for each in notices:
            try:
                await self._client.delete_message(QueueUrl=self._url, ReceiptHandle=each.receipt)
            except _FAILURES as error:
                log.warning("a notice cannot be taken down: %s", error)

    async def delay(self, notice: Notice, delay_s: float) -> None:
        """A new one in its place: SQS does not keep old ones for ever."""
        await self.put_up(notice.session, delay_s)
        await self.take_down([notice])

    async def _listen(self) -> None:
        while True:
            try:
                found = await self._client.receive_message(
                    QueueUrl=self._url,
                    MaxNumberOfMessages=10,
                    WaitTimeSeconds=_LISTENS_S,
                    VisibilityTimeout=_HIDDEN_S,
                )
            except _FAILURES as error:
                log.warning("notices cannot be heard: %s", error)
                await asyncio.sleep(_REST_S)
                continue
            self._heard += [Notice(each["Body"], each["ReceiptHandle"]) for each in found.get("Messages", ())]
