"""The fields of a header that are recorded."""

import pytest

from mqcd.core.labels import value_of
from mqcd.core.smtp.marks import MAX_OCTETS, Marks, marks_of


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
def test_a_message_id_is_the_body_of_its_field(content: bytes, found: str) -> None:
    assert marks_of(content).message_id == found


def test_it_is_cut() -> None:
    assert len(marks_of(b"Message-ID: <" + b"x" * 5000 + b">\r\n\r\n").message_id) == MAX_OCTETS


def test_each_field_is_found_wherever_it_stands() -> None:
    content = b"List-Id: News <news.list.example>\r\nMessage-ID: <a@b>\r\nX-Mqcd-Tag: spring sale\r\n\r\n"
    assert marks_of(content) == Marks("<a@b>", "News <news.list.example>", "spring sale")
    assert marks_of(b"Subject: x\r\n" + content) == marks_of(content)


def test_the_first_of_two_fields_counts() -> None:
    assert marks_of(b"X-mqcd-Tag: a\r\nx-mqcd-tag: b\r\n\r\n").tag == "a"


def test_names_are_labels_without_their_brackets() -> None:
    labels = Marks("<a@b>", "News 100% <news.list.example>", "spring sale").labels("acme")
    assert [value_of(labels, name) for name in ("tenant", "message-id", "list-id", "tag")] == [
        "acme", "a@b", "news.list.example", "spring sale",
    ]  # fmt: skip


def test_a_header_without_them_has_no_labels() -> None:
    assert marks_of(b"Subject: Message-ID: x\r\n\r\nX-mqcd-Tag: a\r\n").labels() == ""
