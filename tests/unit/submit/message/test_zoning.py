"""Which zone a header chooses."""

import pytest

from mqcd.config.settings import ZoneMatchSettings, ZoneSettings
from mqcd.submit.message.zoning import MAX_SECTION, Zoning
from tests.unit.submit.support import House, server, visit


def zone(name: str, *headers: str, **more: tuple[str, ...]) -> ZoneSettings:
    return ZoneSettings(name=name, matches=(ZoneMatchSettings(header=headers, **more),))


def chosen(content: bytes, *zones: ZoneSettings, sender: str = "a@b.example", listener: str = "SMTP") -> str:
    return Zoning(zones).choose(content, sender=sender, listener=listener)


@pytest.mark.parametrize(
    ("header", "wanted", "fits"),
    [
        (b"X-Bulk: 1", "X-Bulk", True),
        (b"x-BULK:", "X-Bulk", True),
        (b"X-Bulk : 1", "X-Bulk", True),
        (b"X-Bulky: 1", "X-Bulk", False),
        (b"Subject: X-Bulk: 1", "X-Bulk", False),
        (b"X-Bulk 1", "X-Bulk", False),
        (b"X-Mailer:  News  Letter ", "X-Mailer: news letter", True),
        (b"X-Mailer: News\r\n\tLetter", "X-Mailer: News Letter", True),
        (b"X-Mailer: News Letter 2", "X-Mailer: News Letter", False),
        (b"X-Mailer: other\r\nX-Mailer: news", "X-Mailer:news", True),
        ("X-Name: Jörg".encode(), "X-Name: JÖRG", True),
        (b"X-Name: J\xf6rg", "X-Name: J\ufffdrg", True),
        (b"X-A: b\r\n X-Bulk: 1", "X-Bulk", False),
    ],
)
def test_names_and_values(header: bytes, wanted: str, fits: bool) -> None:
    content = b"From: a@b.example\r\n" + header + b"\r\nTo: c@d.example\r\n\r\nText\r\n"
    assert chosen(content, zone("bulk", wanted)) == ("bulk" if fits else "")


def test_the_body_chooses_nothing() -> None:
    assert chosen(b"A: b\r\n\r\nX-Bulk: 1\r\n", zone("bulk", "X-Bulk")) == ""
    assert chosen(b"\r\nX-Bulk: 1\r\n", zone("bulk", "X-Bulk")) == ""
    assert chosen(b"", zone("bulk", "X-Bulk")) == ""


def test_the_first_zone_with_a_full_match_counts() -> None:
    content = b"X-Bulk: 1\r\nX-News: 1\r\n\r\n"
    one, two = zone("one", "X-News", "X-Bulk"), zone("two", "X-Bulk")
    assert chosen(content, one, two) == "one"
    assert chosen(content, zone("one", "X-News", sender=("<>",)), two) == "two"
    assert chosen(content, zone("one", "X-News", sender=("b.example",), listener=("SMTP",))) == "one"
    assert chosen(content, zone("one", "X-News", listener=("other",))) == ""
    assert chosen(content, zone("one", "X-News", user=("ann",))) == ""
    assert chosen(content, zone("one", "X-News", domain=("later.example",))) == "one"


def test_a_match_without_a_header_is_not_the_doors() -> None:
    rules = Zoning([ZoneSettings(name="all", matches=(ZoneMatchSettings(),))])
    assert not rules
    assert rules.choose(b"A: b\r\n\r\n", sender="", listener="") == ""


def test_what_is_too_far_down_chooses_nothing() -> None:
    filler = b"X-Filler: " + b"x" * 988 + b"\r\n"
    count = MAX_SECTION // len(filler)
    assert chosen(filler * (count - 1) + b"X-Bulk: 1\r\n\r\n", zone("bulk", "X-Bulk")) == "bulk"
    assert chosen(filler * (count + 1) + b"X-Bulk: 1\r\n\r\n", zone("bulk", "X-Bulk")) == ""
    cut = b"a" * (MAX_SECTION - 10) + b"\r\nX-Bulk: 12345\r\n\r\n"
    assert chosen(cut, zone("bulk", "X-Bulk: 1")) == ""


@pytest.mark.parametrize("octets", [b" \r\n", b":\r\n", b"X-Bulk:\r\n ", b"\r\n\t", b"X" * 1000])
def test_a_hostile_header_chooses_nothing(octets: bytes) -> None:
    assert chosen(octets * (4 * MAX_SECTION // len(octets)), zone("bulk", "X-Bulk: 1", "X-Other")) == ""


@pytest.mark.parametrize("filler", [0, 500, 5000])
async def test_the_door_writes_the_zone_into_the_envelope(filler: int) -> None:
    """Also where the content does not go to the store whole, and the header does not come at once."""
    house = House(server(maxline=0), inline_max=4096)
    house.door.assign([zone("bulk", "X-Bulk")])
    await house.store.open()
    await house.door.start()
    async with visit(house) as client:
        await client.begin()
        client.writer.write(b"X-Filler: " + b"x" * filler + b"\r\nX-Bu")
        await client.writer.drain()
        assert (await client.send(b"lk: 1\r\n\r\n" + b"y" * filler + b"\r\n.\r\n")).startswith("250 ")
        await client.begin()
        assert (await client.send(b"X-Other: 1\r\n\r\nX-Bulk: 1\r\n.\r\n")).startswith("250 ")
    first, second = sorted(await house.queued(), key=lambda each: each.spid)
    assert (first.envelope.zone, second.envelope.zone) == ("bulk", "")
    assert b"\r\nX-Bulk: 1\r\n\r\n" in await house.content(first)
    await house.door.stop()
