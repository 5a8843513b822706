"""The Message-ID as logs and events tell it."""

import pytest

from mqcd.core.smtp.messageid import MAX_OCTETS, message_id


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"Subject: a\r\nMessage-ID: <a@b>\r\n\r\nx\r\n", "<a@b>"),
        (b"MESSAGE-id:<a@b> \r\n\r\n", "<a@b>"),
        (b"Subject: a\r\nMessage-ID:\r\n <a@b>\r\nTo: c\r\n\r\n", "<a@b>"),
        (b"Subject: a\r\n\r\nMessage-ID: <a@b>\r\n", ""),
        (b"\r\nMessage-ID: <a@b>\r\n\r\n", ""),
        (b"X-Message-ID: <a@b>\r\n\r\n", ""),
        (b"Message-ID: \r\n\r\n", ""),
        (b"Message-ID: <a@b>", "<a@b>"),
        (b"Message-ID: <\x1b[31m\xff\xe2\x80\xae@b>\r\n\r\n", "<?[31m\ufffd?@b>"),
        (b"", ""),
    ],
)
def test_it_is_the_fields_body_in_the_header(content: bytes, found: str) -> None:
    assert message_id(content) == found


def test_it_is_cut() -> None:
    assert len(message_id(b"Message-ID: <" + b"x" * 5000 + b">\r\n\r\n")) == MAX_OCTETS
