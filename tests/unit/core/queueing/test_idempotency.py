"""Names and digests of keys."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mqcd.core.model import Envelope, Submission
from mqcd.core.queueing.idempotency import Used, key_of, name_of, read_on, repeated
from mqcd.core.smtp.reply import Refused

SENDER, TO = "a@b.example", ("c@d.example", "e@f.example")


def digest(
    sender: str = SENDER, to: tuple[str, ...] = TO, more: tuple[str, ...] = (), text: bytes = b"x"
) -> bytes:
    return key_of("user:a", "k", sender, to, text, more).digest


def test_a_name_is_of_owner_and_key() -> None:
    names = {
        name_of(owner, key) for owner, key in (("a", "b"), ("a", "c"), ("ab", ""), ("", "ab"), ("b", "b"))
    }
    assert len(names) == 5
    assert all(len(name) == 16 for name in names)


def test_a_digest_is_of_envelope_and_content() -> None:
    digests = {
        digest(),
        digest(sender="x@b.example"),
        digest(to=TO[:1]),
        digest(to=TO[::-1]),
        digest(more=("RET=HDRS",)),
        digest(text=b"y"),
        digest(text=b""),
    }
    assert len(digests) == 7


def test_a_digest_is_the_same_in_parts() -> None:
    key = key_of("user:a", "k", SENDER, TO, b"ab")
    for part in (b"", b"c"):
        read_on(key, part)
    assert key.digest == digest(text=b"abc")


async def test_a_repeat_gives_the_first_spid_to_its_recipients() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"c"

    envelope = Envelope(spid=7, sender=SENDER, received=1)
    key = key_of("user:a", "k", SENDER, TO, b"abc")
    submission = Submission(
        envelope=envelope, recipients=TO, content=parts(), recipient_dsn=("", "NOTIFY=NEVER"), key=key
    )
    found = await repeated(submission, Used(5, key.digest, 0))
    assert [(each.spid, each.qid, each.address, each.size, each.dsn) for each in found] == [
        (5, 1, TO[0], 3, ""),
        (5, 2, TO[1], 3, "NOTIFY=NEVER"),
    ]


async def test_another_message_under_the_key_is_refused() -> None:
    envelope = Envelope(spid=7, sender=SENDER, received=1)
    submission = Submission(
        envelope=envelope, recipients=TO, content=b"abc", key=key_of("user:a", "k", SENDER, TO, b"abc")
    )
    with pytest.raises(Refused):
        await repeated(submission, Used(5, bytes(8), 0))
