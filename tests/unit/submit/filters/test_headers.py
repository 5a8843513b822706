"""Header fields removed and added, octets of the rest untouched."""

from __future__ import annotations

import pytest

from mqcd.submit.filters.fields import field, without
from mqcd.submit.filters.handlers import BadFilter, make_handler
from tests.unit.submit.support import House, open_house, server, visit

HEADERS = "mqcd.submit.filters.headers:Headers"

MESSAGE = b"A: 1\r\nX-Drop: 2\r\n\tfolded\r\n more\r\nB: 3\r\nx-drop : 4\r\n\r\nX-Drop: body\r\n\xff\r\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (MESSAGE, b"A: 1\r\nB: 3\r\n\r\nX-Drop: body\r\n\xff\r\n"),
        (b"\r\nX-Drop: body\r\n", b"\r\nX-Drop: body\r\n"),
        (b"X-Drop: 1", b""),
        (b"no header\r\nX-Drop: 1\r\n", b"no header\r\nX-Drop: 1\r\n"),
        (b"", b""),
        (b" begins folded\r\nX-Drop: 1\r\n\r\n", b" begins folded\r\n\r\n"),
    ],
)
def test_fields_are_removed_with_their_folds(content: bytes, expected: bytes) -> None:
    assert without(content, "x-drop".__eq__) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", b"X: plain\r\n"),
        ("a\n\tb\r\n c", b"X: a\r\n\tb\r\n\tc\r\n"),
        ("a\n\nBcc: evil", b"X: a\r\n\tBcc: evil\r\n"),
        ("nul\0esc\x1b", b"X: nulesc\r\n"),
        ("käse", "X: käse\r\n".encode()),
    ],
)
def test_a_value_never_begins_another_field(value: str, expected: bytes) -> None:
    assert field("X", value) == expected


@pytest.mark.parametrize("name", ["", "a b", "a:", "ä", "a\r\nb"])
def test_what_is_no_name_of_a_field(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        field(name, "x")


@pytest.mark.parametrize(
    "options", [(), ("add=X",), ("add=a b: c",), ("drop=X",), ("remove=a b",), ("remove",)]
)
def test_options_that_cannot_be(options: tuple[str, ...]) -> None:
    with pytest.raises(BadFilter, match=HEADERS):
        make_handler(HEADERS, options)


def test_a_filter_without_options_refuses_them() -> None:
    with pytest.raises(BadFilter, match="takes no options"):
        make_handler("aiosmtpd.handlers:Sink", ("a=b",))


async def test_a_door_changes_headers() -> None:
    options = ("remove=x-internal-*", "add=X-Site: berlin", "add=X-Site: two")
    async with (
        open_house(House(server(filter=HEADERS, filter_options=options))) as house,
        visit(house) as client,
    ):
        await client.begin()
        assert (await client.send(b"A: 1\r\nX-INTERNAL-host: h\r\n\r\nbody\r\n.\r\n")).startswith("250 ")
        [recipient] = await house.queued()
        assert await house.content(recipient) == b"X-Site: berlin\r\nX-Site: two\r\nA: 1\r\n\r\nbody\r\n"
