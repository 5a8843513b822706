"""Objects of one bucket under one prefix: the requests of the S3 store, and what their failures mean."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import AioSession  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError  # type: ignore[import-untyped]

from mqcd.core.errors import ContentUnavailable, StoreUnavailable

log = logging.getLogger(__name__)

_AT_ONCE = 16
"""Requests under way."""
ERRORS = (BotoCoreError, HTTPClientError, aiohttp.ClientError, OSError, TimeoutError)
"""Of a request that had no answer; ClientError is an answer that refuses it."""
CLIENT = AioConfig(max_pool_connections=1 << 20)
"""Settings of a client. A stream keeps its connection until the delivery ends that reads it, and that waits
for other requests meanwhile: they may not wait for a connection. Requests are `_AT_ONCE`; how many streams
there are, the descriptors of deliveries bound."""
PLAINLY = CLIENT.merge(
    AioConfig(request_checksum_calculation="when_required", response_checksum_validation="when_required")
)
"""The same for other stores than Amazon's. Over TLS a client would send checksums as trailers, which Swift
refuses; without them it signs the octets' hash, which every store checks."""


class ConditionRefused(StoreUnavailable):
    """The store has not implemented a condition, and says so."""


class Objects:
    """Usable while `client` is set. `kind` and `name` make the key."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.make_session = AioSession
        self.client: Any = None
        self._bucket, self._prefix = bucket, prefix
        self._permits = asyncio.Semaphore(_AT_ONCE)

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Any]:
        """The client. Raises StoreUnavailable; ClientError passes."""
        if self.client is None:
            raise StoreUnavailable("the store s3 is not open")
        try:
            async with self._permits:
                yield self.client
        except ERRORS as error:
            raise StoreUnavailable(f"s3: {error or type(error).__name__}") from error

    def at(self, kind: str, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{kind}/{name}"}

    async def put(self, kind: str, name: str, body: bytes, **condition: str) -> str | None:
        """The tag of what was written; None when the condition does not hold."""
        try:
            async with self.asking() as client:
                done = await client.put_object(**self.at(kind, name), Body=body, **condition)
        except ClientError as error:
            if _code(error) in ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "404"):
                return None
            raise _failure(error, bool(condition)) from error
        return str(done["ETag"])

    async def get(self, kind: str, name: str) -> tuple[bytes, str] | None:
        """Octets and tag; None when there is none."""
        try:
            async with self.asking() as client:
                found = await client.get_object(**self.at(kind, name))
                async with found["Body"] as stream:
                    return await stream.read(), str(found["ETag"])
        except ClientError as error:
            if _code(error) in ("NoSuchKey", "404"):
                return None
            raise StoreUnavailable(f"s3: {error}") from error

    async def delete(self, kind: str, name: str, **condition: str) -> bool:
        """False when the condition does not hold."""
        try:
            async with self.asking() as client:
                await client.delete_object(**self.at(kind, name), **condition)
        except ClientError as error:
            if _code(error) in ("PreconditionFailed", "ConditionalRequestConflict"):
                return False
            if _code(error) in ("NoSuchKey", "404"):
                return True
            raise _failure(error, bool(condition)) from error
        return True

    async def honours_conditions(self) -> bool:
        """Whether each kind of condition decides if a change is made: tried on an object of its own.

        Each is tried, because stores exist that honour some and overlook or refuse others.
        """
        at = "probe", uuid.uuid4().hex
        try:
            old = str(await self.put(*at, b"1"))
            return (
                await self.put(*at, b"2", IfNoneMatch="*") is None
                and await self.put(*at, b"2", IfMatch=old) is not None
                and await self.put(*at, b"3", IfMatch=old) is None
                and not await self.delete(*at, IfMatch=old)
            )
        except ConditionRefused as error:
            log.info("%s", error)
            return False
        finally:
            await self.delete(*at)

    async def page(self, kind: str, token: str = "") -> tuple[list[dict[str, Any]], float, str | None]:
        """Up to 1,000 objects, the server's time, and the token of the next page; None = this is the last."""
        prefix = f"{self._prefix}{kind}/"
        where = {"ContinuationToken": token} if token else {}
        try:
            async with self.asking() as client:
                page = await client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, **where)
        except ClientError as error:
            raise StoreUnavailable(f"s3: {error}") from error
        at = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()
        found = [{**each, "name": each["Key"].removeprefix(prefix)} for each in page.get("Contents", ())]
        return found, at, page["NextContinuationToken"] if page.get("IsTruncated") else None

    async def list(self, kind: str) -> tuple[list[dict[str, Any]], float]:
        """All objects of a kind, and the server's time."""
        found, at, following = await self.page(kind)
        while following is not None:
            some, at, following = await self.page(kind, following)
            found += some
        return found, at

    async def abort(self, upload: Upload) -> None:
        """Keep nothing of an upload."""
        try:
            async with self.asking():
                await upload.abort()
        except (StoreUnavailable, ClientError) as error:
            log.warning("an upload is left unfinished: %s", error)


class Upload:
    """A content in parts."""

    def __init__(self, client: Any, at: dict[str, str]) -> None:
        self._client = client
        self._at = at
        self._id = ""
        self.parts: list[dict[str, Any]] = []

    async def part(self, octets: bytes) -> None:
        """The next one."""
        if not self._id:
            self._id = (await self._client.create_multipart_upload(**self._at))["UploadId"]
        number = len(self.parts) + 1
        done = await self._client.upload_part(**self._at, UploadId=self._id, PartNumber=number, Body=octets)
        self.parts.append({"ETag": done["ETag"], "PartNumber": number})

    async def end(self, octets: bytes) -> None:
        """The last one."""
        if octets:
            await self.part(octets)
        await self._client.complete_multipart_upload(
            **self._at, UploadId=self._id, MultipartUpload={"Parts": self.parts}
        )

    async def abort(self) -> None:
        """Nothing of it is kept."""
        if self._id:
            await self._client.abort_multipart_upload(**self._at, UploadId=self._id)


class Streamed:
    """An open handle on a long content."""

    def __init__(self, stream: Any, size: int) -> None:
        self.size = size
        self._stream = stream
        self._left = size

    async def read(self, octets: int) -> bytes:
        """The next octets; b"" at the end."""
        if self._stream is None:
            raise ValueError("this content is closed")
        if not self._left:
            return b""
        try:
            data: bytes = await self._stream.read(octets)
        except ERRORS as error:
            raise ContentUnavailable(f"s3: {error}") from error
        if not data:
            raise ContentUnavailable(f"s3: content cut off, {self._left} octets are missing")
        self._left -= len(data)
        return data

    def close(self) -> None:
        """End the request."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _failure(error: Any, conditional: bool) -> StoreUnavailable:
    refused = conditional and _code(error) == "NotImplemented"
    return (ConditionRefused if refused else StoreUnavailable)(f"s3: {error}")
