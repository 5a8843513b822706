"""The key in a message's header: found, removed, refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.submit.esmtp.parameters import MAX_KEY
from mqcd.submit.esmtp.refusal import DoorRefused
from mqcd.submit.message.keys import take_key


@pytest.mark.parametrize(
    ("content", "key", "rest"),
    [
        (b"X-mqcd-Key: a-1\r\nTo: b\r\n\r\nbody", "a-1", b"To: b\r\n\r\nbody"),
        (b"To: b\r\nx-MQCD-key :\ta-1 \r\n\r\nbody", "a-1", b"To: b\r\n\r\nbody"),
        (b"To: b\r\nX-mqcd-Key:\r\n a-1\r\nCc: d\r\n\r\n", "a-1", b"To: b\r\nCc: d\r\n\r\n"),
        (b"X-mqcd-Key: a\r\n\r\n", "a", b"\r\n"),
        (b"X-mqcd-Key: a\r\n", "a", b""),
        (b"To: b\r\nX-mqcd-Key: a", "a", b"To: b\r\n"),
        (b"X-mqcd-Keys: a\r\n\r\n", "", b"X-mqcd-Keys: a\r\n\r\n"),
        (b"To: b\r\n\r\nX-mqcd-Key: a\r\n", "", b"To: b\r\n\r\nX-mqcd-Key: a\r\n"),
        (b"\r\nX-mqcd-Key: a\r\n", "", b"\r\nX-mqcd-Key: a\r\n"),
        (b"Subject: x\r\n X-mqcd-Key: a\r\n\r\n", "", b"Subject: x\r\n X-mqcd-Key: a\r\n\r\n"),
        (b"", "", b""),
    ],
)
def test_the_key_of_a_header(content: bytes, key: str, rest: bytes) -> None:
    assert take_key(content) == (key, rest)


@pytest.mark.parametrize(
    "field", [b"", b"two words", b"a\xc3\xa9", b"x" * (MAX_KEY + 1), b"a\r\nX-mqcd-Key: a", b"a\r\n b"]
)
def test_what_is_no_key_is_refused(field: bytes) -> None:
    with pytest.raises(DoorRefused) as refused:
        take_key(b"X-mqcd-Key: " + field + b"\r\n\r\nbody")
    assert refused.value.reply.code == 554


def test_a_fold_at_the_end_belongs_to_the_key() -> None:
    with pytest.raises(DoorRefused):
        take_key(b"X-mqcd-Key:abc:\r\n\t:")


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_any_header_is_taken_or_refused(head: bytes, body: bytes) -> None:
    try:
        _, rest = take_key(head + b"\r\n\r\n" + body)
    except DoorRefused:
        return
    assert rest.endswith(b"\r\n" + body)
