"""Messages in an S3-compatible object store, shared by several servers.

Objects, each behind `prefix`: `message/<SPID>` has the session of the node that it belongs to in its first
line, then the recipients' values; `content/<SPID>` is the content; `node/<number>` a node's session and, by
when it was written last, its lease; `marks/<number>` are marks.

Each change of a message is a PUT or DELETE on condition that the object is the one that this node wrote or
took (`If-Match`); a new one must not be there (`If-None-Match`). So a node whose mail was taken over changes
nothing of it. Times are those of the server: when it wrote an object, and its Date.

Promises: synced. A write of several messages may be kept in part. Shared where the store honours conditions,
which a start tries; else one server may use it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from mqcd.core.content import MemoryContent
from mqcd.core.errors import ContentUnavailable, StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.core.ports import Content
from mqcd.core.queueing.spid import format_spid, parse_spid
from mqcd.stores import values
from mqcd.stores.backend import Change, Marks, Promises, Stored, Write
from mqcd.stores.s3_notices import Notice, Notices
from mqcd.stores.s3_objects import CLIENT, ERRORS, PLAINLY, Objects, Streamed, Upload

log = logging.getLogger(__name__)

_PART = 8 << 20
"""Octets of a part of a long upload."""
_IN_MEMORY = 1 << 20
"""Content of so many octets is read at once."""
_NODES = 256
_MARGIN_S = 2.0
"""Clocks of the two services may differ by this; both count in seconds."""
_SCAN_S = 600.0
"""How often all messages are listed, at least."""


class S3Store:
    """`backend.Backend` in a bucket, which must be there.

    `endpoint`: URL of the store, "" = Amazon's. `region`, `profile`: as in the configuration files of AWS;
    keys come from there, or from the environment. `prefix` of all objects. `lease_ms`: after this time the
    mail of a node that is gone is taken over. `queue_url`: a queue of SQS for notices about nodes, "" = each
    node lists them once a second.
    """

    promises = Promises(synced=True, atomic=False, shared=True)

    def __init__(
        self,
        bucket: str,
        prefix: str = "mqcd/",
        endpoint: str = "",
        region: str = "",
        profile: str = "",
        lease_ms: int = 60_000,
        queue_url: str = "",
        *,
        objects: Objects | None = None,
    ) -> None:
        self._objects = objects or Objects(bucket, prefix)
        self._prefix = prefix
        self._endpoint, self._region, self._profile = endpoint, region, profile
        self.lease_ms = lease_ms
        self.node = 0
        self._session = ""
        self._lease_tag = ""
        self._notices = Notices(queue_url) if queue_url else None
        self._gone: list[Notice] = []
        """Notices about sessions whose messages are being taken."""
        self._closing = AsyncExitStack()
        self._tags: dict[int, str] = {}
        """The versions of this session's messages, as it wrote or took them."""
        self._found: list[int] = []
        """Messages that a scan saw and that were not taken yet."""
        self._next: str | None = None
        """The token of the scan's next page, "" = its first; None = no scan is under way."""
        self._lived: frozenset[str] = frozenset()
        self._scanned = float("-inf")

    # ------------------------------------------------------------ the session

    async def open(self) -> Marks:
        """Begin a session. Raises StoreBusy when 256 nodes use the store."""
        session = self._objects.make_session(**({"profile": self._profile} if self._profile else {}))
        try:
            self._objects.client = await self._closing.enter_async_context(
                session.create_client(
                    "s3",
                    endpoint_url=self._endpoint or None,
                    region_name=self._region or None,
                    config=PLAINLY if self._endpoint else CLIENT,
                )
            )
            await self._look_at_promises()
            if self._notices is not None:
                await self._open_notices(self._notices, session)
            # Before the lease begins: in a large store its lists take long.
            await self._remove_leftovers()
            return await self._begin()
        except BaseException:
            await self.close()
            raise

    async def _open_notices(self, notices: Notices, session: Any) -> None:
        try:
            await notices.open(session, self._region)
        except (*ERRORS, ClientError) as error:
            raise StoreUnavailable(f"the queue for notices cannot be used: {error}") from error

    async def _look_at_promises(self) -> None:
        """Whether the store honours conditions."""
        shared = await self._objects.honours_conditions()
        self.promises = replace(self.promises, shared=shared)
        if not shared:
            self.lease_ms = 0
            log.warning("this object store knows no conditions: no other server may use %s", self._prefix)

    def _if_still(self, tag: str | None) -> dict[str, str]:
        """The condition that an object is of this version, or with None is not there. Where one server uses
        the store there is none: it may refuse a request that has one."""
        if not self.lease_ms:
            return {}
        return {"IfMatch": tag} if tag is not None else {"IfNoneMatch": "*"}

    async def _living(self) -> dict[str, dict[str, Any]]:
        """Nodes whose lease lasts, by number. A lease begins when its object was written."""
        nodes, at = await self._objects.list("node")
        lease = self.lease_ms / 1000
        return {each["name"]: each for each in nodes if each["LastModified"].timestamp() + lease > at}

    async def _begin(self) -> Marks:
        session = uuid.uuid4().hex
        there = {each["name"]: each["ETag"] for each in (await self._objects.list("node"))[0]}
        living = await self._living() if self.lease_ms else {}
        for number in range(_NODES):
            name = f"{number:03d}"
            if name in living:
                continue
            condition = self._if_still(there.get(name))
            tag = await self._objects.put("node", name, session.encode(), **condition)
            if tag is not None:
                begun = f"{name}-{session}"
                try:
                    marks = await self._announce(name, begun)
                except BaseException:
                    with suppress(StoreUnavailable):
                        await self._objects.delete("node", name, **self._if_still(tag))
                    raise
                # Not before: a `renew` after a failure would take it for a lease that was kept.
                self.node, self._session, self._lease_tag = number, begun, tag
                self._tags, self._found, self._next = {}, [], None
                self._lived, self._scanned = frozenset(), float("-inf")
                return marks
        raise StoreBusy(f"{_NODES} nodes use {self._prefix}")

    async def _announce(self, name: str, begun: str) -> Marks:
        """Put up the notice of a session that begins, and read the marks of its number."""
        if self._notices is not None and self.lease_ms:
            await self._notices.put_up(begun, self.lease_ms / 1000 + _MARGIN_S)
        found = await self._objects.get("marks", name)
        return values.unpack_marks(found[0]) if found is not None else {}

    async def renew(self) -> Marks | None:
        """See the port."""
        name, session = self._session.split("-")
        tag = None
        if name in await self._living():
            tag = await self._objects.put("node", name, session.encode(), IfMatch=self._lease_tag)
        if tag is None:
            return await self._begin()
        self._lease_tag = tag
        return None

    async def close(self) -> None:
        """End the session: other nodes take its messages at once."""
        if self._objects.client is None:
            return
        try:
            if self._session:
                name = self._session.partition("-")[0]
                await self._objects.delete("node", name, **self._if_still(self._lease_tag))
                if self._notices is not None:
                    await self._notices.put_up(self._session)
        except StoreUnavailable as error:
            log.warning("its mail is taken over when the lease has run out: %s", error)
        if self._notices is not None:
            await self._notices.close()
        self._objects.client, self._session = None, ""
        await self._closing.aclose()

    async def _remove_leftovers(self) -> None:
        """Contents of messages that never came. They are older than any write that may be under way."""
        contents, at = await self._objects.list("content")
        messages = {each["name"] for each in (await self._objects.list("message"))[0]}
        for each in contents:
            if each["name"] not in messages and each["LastModified"].timestamp() + 86_400 < at:
                await self._objects.delete("content", each["name"])

    # ------------------------------------------------------------ documents

    async def take(self, most: int) -> Sequence[Stored] | None:
        """Messages of sessions that are gone, by SPID; None where `most` that were looked at are others'."""
        if not self._found and self._next is None:
            await self._scan()
        if self._next is not None and len(self._found) < most:
            await self._find_more(self._next)
        some, self._found = self._found[:most], self._found[most:]
        leases: dict[str, asyncio.Future[float]] = {}
        found = await asyncio.gather(*(self._take(spid, leases) for spid in some), return_exceptions=True)
        taken = [each for each in found if isinstance(each, Stored)]
        each_of = zip(some, found, strict=True)
        failed = {spid: each for spid, each in each_of if isinstance(each, BaseException)}
        self._found += failed
        for spid, error in failed.items() if not taken else ():
            if isinstance(error, StoreDamaged):
                # Until the next scan: others are to be taken.
                self._found.remove(spid)
            raise error
        return taken if taken or (not self._found and self._next is None) else None

    async def _scan(self) -> None:
        """Begin to list the messages, when a node is gone or it is time to."""
        now = asyncio.get_running_loop().time()
        in_time = now < self._scanned + _SCAN_S
        if self._notices is not None and not await self._any_gone(self._notices) and in_time:
            return
        numbers = frozenset(await self._living() if self.lease_ms else {})
        if numbers >= self._lived and in_time and not self._gone:
            self._lived = numbers
            return
        self._next, self._lived, self._scanned = "", numbers, now

    async def _find_more(self, token: str) -> None:
        """The messages of the scan's next page. A scan of which that fails begins anew."""
        try:
            messages, _, self._next = await self._objects.page("message", token)
        except BaseException:
            self._next, self._scanned = None, float("-inf")
            raise
        spids = [parse_spid(each["name"]) for each in messages]
        # Before messages that could not be taken: those may fail again.
        self._found = [*(spid for spid in spids if spid not in self._tags), *self._found]

    async def _any_gone(self, notices: Notices) -> bool:
        """Hear which sessions may be gone. What those of the last time had has been taken."""
        gone, self._gone = self._gone, []
        await notices.take_down(gone)
        for notice in notices.heard():
            left_s = await self._lasts_s(notice.session)
            if left_s > 0:
                await notices.delay(notice, left_s + _MARGIN_S)
            else:
                self._gone.append(notice)
        return bool(self._gone)

    async def _lasts_s(self, session: str) -> float:
        """How long a session's lease lasts as of now; 0 = it has run out, or there is no such session."""
        name, _, identity = session.partition("-")
        nodes, at = await self._objects.list("node")
        written = [each["LastModified"].timestamp() for each in nodes if each["name"] == name]
        left_s = max((begun + self.lease_ms / 1000 - at for begun in written), default=0.0)
        found = await self._objects.get("node", name) if left_s > 0 else None
        return left_s if found is not None and found[0].decode() == identity else 0.0

    async def _take(self, spid: int, leases: dict[str, asyncio.Future[float]]) -> Stored | None:
        """The message, if its node is gone. `leases`: how long sessions last that were looked up."""
        name = format_spid(spid)
        found = await self._objects.get("message", name)
        if found is None:
            return None
        owner, body = _parts(name, found[0])
        if owner != self._session:
            # Not before a message of it has been read: then it has begun.
            if self.lease_ms and owner not in leases:
                leases[owner] = asyncio.ensure_future(self._lasts_s(owner))
            if self.lease_ms and await leases[owner] > 0:
                return None
            condition = self._if_still(found[1])
            tag = await self._objects.put("message", name, self._packed(body), **condition)
            if tag is None:
                return None
            found = found[0], tag
        self._tags[spid] = found[1]
        return Stored(spid=spid, values=values.unpack(body))

    def _packed(self, body: bytes) -> bytes:
        return self._session.encode() + b"\n" + body

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        """Objects that do not depend on one another go at once."""
        return asyncio.ensure_future(self._write(write, self._tags))

    async def _write(self, write: Write, tags: dict[int, str]) -> Sequence[int]:
        if tags is not self._tags:
            return [change.spid for change in write.changes]
        if write.marks:
            await self._objects.put("marks", f"{self.node:03d}", values.pack_marks(write.marks))
        lost: list[int] = []
        new = [change for change in write.changes if change.is_new]
        old = [change for change in write.changes if not change.is_new and change.due is not None]
        ended = [change for change in write.changes if change.due is None]
        for some in (new, old, ended):
            # None may be under way where one fails: it could replace what a later write says.
            kept = await asyncio.gather(
                *(self._apply(change, tags) for change in some), return_exceptions=True
            )
            for change, done in zip(some, kept, strict=True):
                if isinstance(done, BaseException):
                    raise done
                if not done:
                    lost.append(change.spid)
        return lost

    async def _apply(self, change: Change, tags: dict[int, str]) -> bool:
        """False for a message of another node, or of a session that has ended."""
        name = format_spid(change.spid)
        if tags is not self._tags:
            return False
        if change.content is not None:
            await self._objects.put("content", name, change.content)
        for is_last in (False, True):
            if tags is not self._tags:
                break
            # An end without a tag: what a write that failed has left, if anything.
            is_known = change.due is not None or change.spid in tags or not self.lease_ms
            if is_known and await self._change(change, name, tags):
                return True
            # Also when an answer was lost: then it is what this node has written.
            found = await self._objects.get("message", name)
            if found is None:
                if not change.is_new:
                    return await self._has_ended(change, name)
                if is_last:
                    raise StoreUnavailable(f"s3: message {name} is refused, and not there")
                # Two requests of this node met (409): it is not another's, and may come again.
                continue
            if _parts(name, found[0])[0] != self._session:
                break
            tags[change.spid] = found[1]
        tags.pop(change.spid, None)
        return False

    async def _has_ended(self, change: Change, name: str) -> bool:
        """Whether a message that is not there was to end; its content goes, too."""
        if change.due is None:
            await self._objects.delete("content", name)
        return change.due is None

    async def _change(self, change: Change, name: str, tags: dict[int, str]) -> bool:
        condition = self._if_still(tags.get(change.spid))
        if change.due is not None:
            body = self._packed(values.pack(change.values()))
            tag = await self._objects.put("message", name, body, **condition)
            if tag is not None:
                tags[change.spid] = tag
            return tag is not None
        if not await self._objects.delete("message", name, **condition):
            return False
        tags.pop(change.spid, None)
        await self._objects.delete("content", name)
        return True

    # ------------------------------------------------------------ contents

    async def stage(self, spid: int, chunks: AsyncIterator[bytes]) -> int:
        """One object, or parts of one. It is removed a day later if its message does not come."""
        name = format_spid(spid)
        size, rest, upload = 0, b"", Upload(self._objects.client, self._objects.at("content", name))
        try:
            async for chunk in chunks:
                size += len(chunk)
                rest += chunk
                if len(rest) >= _PART:
                    async with self._objects.asking():
                        await upload.part(rest)
                    rest = b""
            if not upload.parts:
                await self._objects.put("content", name, rest)
            else:
                async with self._objects.asking():
                    await upload.end(rest)
        except ClientError as error:
            await self._objects.abort(upload)
            raise StoreUnavailable(f"s3: {error}") from error
        except BaseException:
            await self._objects.abort(upload)
            raise
        return size

    async def unstage(self, spid: int) -> None:
        """See the port."""
        name = format_spid(spid)
        if spid not in self._tags and await self._objects.get("message", name) is None:
            await self._objects.delete("content", name)

    async def content(self, spid: int) -> Content:
        """Short content at once, long as a stream: a GET that has begun goes on when its object is gone."""
        name = format_spid(spid)
        try:
            async with self._objects.asking() as client:
                found = await client.get_object(**self._objects.at("content", name))
                if found["ContentLength"] > _IN_MEMORY:
                    return Streamed(found["Body"], found["ContentLength"])
                async with found["Body"] as stream:
                    return MemoryContent(await stream.read())
        except (ClientError, StoreUnavailable) as error:
            raise ContentUnavailable(f"no content of message {name}: {error}") from error


def _parts(name: str, body: bytes) -> tuple[str, bytes]:
    """Owner and values."""
    owner, line_feed, rest = body.partition(b"\n")
    if not line_feed:
        raise StoreDamaged(f"message/{name}: this object is no message")
    return owner.decode("ascii", "replace"), rest
