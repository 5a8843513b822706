"""Date and Message-ID are added on request, and only where they are missing."""

from __future__ import annotations

import pytest

from mqcd.core.labels import value_of
from mqcd.submit.message.completing import missing_fields
from mqcd.submit.message.zoning import MAX_SECTION
from tests.unit.submit.support import House, open_house, server, visit

DATE = b"Date: now\r\n"
NAME = b"Message-ID: <x@y>\r\n"


@pytest.mark.parametrize(
    ("head", "added"),
    [
        (b"Subject: x\r\n\r\nbody", DATE + NAME),
        (b"DATE: x\r\n\r\nbody", NAME),
        (b"Message-Id : <a@b>\r\n\r\nbody", DATE),
        (b"Subject: x\r\nDate: y\r\nMESSAGE-ID:\r\n <a@b>\r\n\r\nbody", b""),
        (b"\r\nDate: in the body\r\n", DATE + NAME),
        (b"Subject: x\r\n Date: folded\r\n\r\n", DATE + NAME),
        (b"", DATE + NAME),
        (b"X: y\r\n" * (MAX_SECTION // 6 + 1), b""),
    ],
)
def test_missing_fields(head: bytes, added: bytes) -> None:
    assert missing_fields(head, date="now", message_id="x@y") == added


@pytest.mark.parametrize("octets", [10, 200_000])
async def test_a_submission_listener_adds_them(octets: int) -> None:
    async with open_house(House(server(submission=True))) as house, visit(house) as client:
        await client.begin()
        body = b"a" * 70 + b"\r\n"
        assert (await client.send(b"Subject: x\r\n\r\n" + body * (octets // 72 + 1) + b".\r\n"))[:3] == "250"
        [recipient] = await house.queued()
        content = await house.content(recipient)
        assert value_of(recipient.envelope.labels, "message-id").encode() in content
        lines = content.split(b"\r\n\r\n")[0].split(b"\r\n")
        assert [line.partition(b":")[0] for line in lines] == [b"Date", b"Message-ID", b"Subject"]


async def test_another_listener_adds_nothing() -> None:
    async with open_house(House(server())) as house, visit(house) as client:
        await client.begin()
        await client.send(b"Subject: x\r\n\r\nbody\r\n.\r\n")
        [recipient] = await house.queued()
        assert await house.content(recipient) == b"Subject: x\r\n\r\nbody\r\n"
