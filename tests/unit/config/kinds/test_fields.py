"""Each kind of value: what it reads, what it refuses, and that it reads what it writes."""

import ipaddress
import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqcd.config.kinds.fields import (
    LARGEST,
    BadValue,
    Boolean,
    Choice,
    Count,
    Duration,
    FilePath,
    Kind,
    Line,
    Listed,
    Optional,
    Percent,
    RateKind,
    Size,
    Text,
)
from mqcd.config.kinds.names import (
    DOMAIN_PATTERN,
    HEADER,
    HOST_NAME,
    MAIL_ADDRESS,
    NAME,
    REDIRECT,
    SENDER,
    URL,
    USER,
    Address,
    Domain,
    Endpoint,
    Host,
    Peers,
    SourceKind,
)
from mqcd.config.settings import HostPort, LogFormat, Rate, Source
from mqcd.core.units import DAY, HOUR, KIB, MINUTE, SECOND

NUMBERS = st.integers(0, LARGEST)
WORDS = st.from_regex(r"[a-z][a-z0-9]{0,10}", fullmatch=True)
HOSTS = st.one_of(
    st.lists(WORDS, min_size=1, max_size=4).map(".".join),
    st.ip_addresses().map(str),
)
NETWORKS = st.builds(
    lambda address, bits: ipaddress.ip_network((address, min(bits, address.max_prefixlen)), strict=False),
    st.ip_addresses(),
    st.integers(0, 128),
)
ENDPOINTS = st.builds(HostPort, host=HOSTS, port=st.integers(1, 65535))
LINES = st.text(st.characters(codec="utf-8")).filter(
    lambda text: text.isprintable() and " ".join(text.split()) == text != "-"
)

ROUND_TRIPS: list[tuple[Kind[Any], st.SearchStrategy[Any]]] = [
    (Size(), NUMBERS),
    (Duration(), NUMBERS),
    (Count(), NUMBERS),
    (Percent(), st.integers(0, 100)),
    (Boolean(), st.booleans()),
    (Choice(LogFormat), st.sampled_from(LogFormat)),
    (Line(), LINES),
    (Text(), st.lists(LINES).map("\n".join).map(str.strip).filter(lambda text: text != "-")),
    (FilePath(), WORDS.map(lambda name: pathlib.Path("/srv") / name)),
    (HOST_NAME, st.lists(WORDS, min_size=1, max_size=4).map(".".join)),
    (NAME, WORDS),
    (USER, WORDS),
    (MAIL_ADDRESS, st.builds("{}@{}".format, WORDS, WORDS)),
    (URL, st.builds("https://{}:{}/{}".format, WORDS, st.integers(1, 65535), WORDS)),
    (REDIRECT, st.just(".") | st.builds("{}@{}".format, WORDS, WORDS)),
    (Domain(), st.lists(WORDS, min_size=2, max_size=4).map(".".join)),
    (Host(), HOSTS),
    (Endpoint(25), ENDPOINTS),
    (Peers(), NETWORKS | HOSTS.filter(lambda host: host[0].isalpha() and ":" not in host)),
    (Peers(), st.builds("{}/{}".format, WORDS, st.integers(1, 128))),
    (Optional(Count()), st.none() | NUMBERS),
    (Optional(FilePath()), st.none() | WORDS.map(pathlib.Path)),
    (Listed(Duration()), st.lists(NUMBERS).map(tuple)),
    (Listed(Endpoint(53)), st.lists(ENDPOINTS).map(tuple)),
    (Listed(Peers()), st.lists(NETWORKS).map(tuple)),
    (Listed(Domain(), separator=","), st.lists(WORDS).map(tuple)),
    (Listed(Line()), st.lists(st.sampled_from(["", "a b"])).map(tuple)),
    (Listed(Line(), separator=","), st.lists(st.sampled_from(["", "a b"])).map(tuple)),
]


@pytest.mark.parametrize(("kind", "values"), ROUND_TRIPS, ids=lambda each: type(each).__name__)
def test_what_a_kind_shows_it_reads(kind: Kind[Any], values: st.SearchStrategy[Any]) -> None:
    @settings(max_examples=50)
    @given(values)
    def check(value: Any) -> None:
        assert kind.parse(kind.show(value)) == value

    check()


@pytest.mark.parametrize("kind", [kind for kind, _ in ROUND_TRIPS], ids=lambda each: type(each).__name__)
def test_a_kind_raises_its_own_error_only(kind: Kind[Any]) -> None:
    @settings(max_examples=50)
    @given(st.text())
    def check(text: str) -> None:
        try:
            value = kind.parse(text)
        except BadValue:
            return
        assert kind.parse(kind.show(value)) == value

    check()


READ: list[tuple[Kind[Any], str, Any]] = [
    (Size(), "256K", 262144),
    (Size(), "256k", 262144),
    (Size(), "256KB", 262144),
    (Size(), "16kb", 16384),
    (Size(), "10B", 10),
    (Size(), "10", 10),
    (Size(), "2G", 2 * 1024**3),
    (Duration(), "1h30m", HOUR + 30 * MINUTE),
    (Duration(), "2d3h10m", 2 * DAY + 3 * HOUR + 10 * MINUTE),
    (Duration(), "1w", 7 * DAY),
    (Duration(), "250", 250),
    (Duration(), "1s250ms", 1250),
    (Duration(), "1H", HOUR),
    (Duration(), "0", 0),
    (Count(), "250000", 250000),
    (Count(), "2K", 2 * KIB),
    (Percent(), "10%", 10),
    (Percent(), "10", 10),
    (Boolean(), "y", True),
    (Boolean(), "No", False),
    (Boolean(), "TRUE", True),
    (Line(), " a \n b ", "a b"),
    (Line(), "-", ""),
    (Domain(), "Example.COM.", "example.com"),
    (Domain(), "bücher.example", "xn--bcher-kva.example"),
    (Domain(), "Straße.example.", "xn--strae-oqa.example"),
    (Domain(), "[192.0.2.1]", "[192.0.2.1]"),
    (Host(), "[::1]", "::1"),
    (Host(), "LocalHost", "localhost"),
    (Endpoint(25), "127.0.0.1:2602", HostPort(host="127.0.0.1", port=2602)),
    (Endpoint(25), "Relay.example", HostPort(host="relay.example", port=25)),
    (Endpoint(25), "[::1]:2525", HostPort(host="::1", port=2525)),
    (Endpoint(53), "::1", HostPort(host="::1", port=53)),
    (Peers(), "127.0.0.1", ipaddress.ip_network("127.0.0.1/32")),
    (Peers(), "192.168.200/24", ipaddress.ip_network("192.168.200.0/24")),
    (Peers(), "10/8", ipaddress.ip_network("10.0.0.0/8")),
    (Peers(), "192.0.2.77/24", ipaddress.ip_network("192.0.2.0/24")),
    (Peers(), "2001:db8::/32", ipaddress.ip_network("2001:db8::/32")),
    (Peers(), "Web.example/24", "web.example/24"),
    (Listed(Duration()), "15m|30m |  2h", (15 * MINUTE, 30 * MINUTE, 2 * HOUR)),
    (Listed(Peers()), "127.0.0.1 | | web", (ipaddress.ip_network("127.0.0.1/32"), "web")),
    (Listed(Duration()), "-", ()),
    (Listed(Domain(), separator=","), "a.example, b.example", ("a.example", "b.example")),
    (Optional(Count()), "-", None),
    (RateKind(), "10/s", Rate(count=10, per=SECOND)),
    (RateKind(), "500 / h", Rate(count=500, per=HOUR)),
    (RateKind(), "20/1m30s", Rate(count=20, per=MINUTE + 30 * SECOND)),
    (SourceKind(), "192.0.2.1", Source(address="192.0.2.1")),
    (SourceKind(), "[2001:DB8::1]*3", Source(address="2001:db8::1", weight=3)),
    (SENDER, "<>", "<>"),
    (DOMAIN_PATTERN, "*.mail.example", "*.mail.example"),
    (HEADER, "X-Mailer: news letter", "X-Mailer: news letter"),
]


@pytest.mark.parametrize(("kind", "text", "value"), READ)
def test_texts_that_are_read(kind: Kind[Any], text: str, value: Any) -> None:
    assert kind.parse(text) == value


REFUSED: list[tuple[Kind[Any], str]] = [
    (RateKind(), "10"),
    (RateKind(), "0/s"),
    (RateKind(), "10/"),
    (RateKind(), "10/5"),
    (RateKind(), "10/x"),
    (SourceKind(), "host.example"),
    (SourceKind(), "192.0.2.1*0"),
    (SourceKind(), "192.0.2.1*"),
    (DOMAIN_PATTERN, "mail*.example"),
    (HEADER, "X Mailer"),
    (Size(), "1.5K"),
    (Size(), "3T"),
    (Size(), "-1"),
    (Size(), "K"),
    (Size(), "256KK"),
    (Size(), "256\u212a"),  # the Kelvin sign folds to k
    (Size(), "9" * 5000),
    (Size(), "٣"),
    (Size(least=512), "511"),
    (Size(most=1 << 20), "1048577"),
    (Duration(), ""),
    (Duration(), "30m1h"),
    (Duration(), "1h30"),
    (Duration(), "1.5h"),
    (Duration(), "1y"),
    (Duration(), "1h 30m"),
    (Duration(least=SECOND), "999"),
    (Duration(most=DAY), "1d1ms"),
    (Count(least=1), "0"),
    (Count(most=65535), "65536"),
    (Count(), "many"),
    (Percent(), "101%"),
    (Percent(), "-5%"),
    (Boolean(), "maybe"),
    (Boolean(), "-"),
    (Choice(LogFormat), "xml"),
    (Line(), "a\x07b"),
    (HOST_NAME, "two words"),
    (HOST_NAME, "a..b"),
    (HOST_NAME, "host\r\nX-Evil: 1"),
    (NAME, "a/b"),
    (USER, "0"),
    (MAIL_ADDRESS, "nobody"),
    (MAIL_ADDRESS, "a@b>, <c@d"),
    (Domain(), "user@example.com"),
    (Domain(), "."),
    (Host(), "999.1.1.1"),
    (Address(), "localhost"),
    (Address(), "192.0.2.0/24"),
    (Host(), "::zz"),
    (Endpoint(25), "host:0"),
    (Endpoint(25), "host:99999"),
    (Endpoint(25), "host:smtp"),
    (Endpoint(25), "[::1"),
    (Peers(), "192.0.2.0/33"),
    (Peers(), "web/abc"),
    (FilePath(), "a\0b"),
    (URL, "https://[::1/hook"),
    (URL, "https://host:99999/hook"),
    (URL, "https://:443/hook"),
    (Listed(Duration(), least=1), "-"),
    (Listed(Duration(), least=1), "|"),
    (Listed(Duration()), "1h | soon"),
]


@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_texts_that_are_refused_with_what_was_expected(kind: Kind[Any], text: str) -> None:
    with pytest.raises(BadValue, match="expected "):
        kind.parse(text)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Size(), 262144, "256K"),
        (Size(), 1000, "1000"),
        (Size(), 0, "0"),
        (Duration(), 72 * HOUR, "72h"),
        (Duration(), 7 * DAY, "7d"),
        (Duration(), HOUR + 30 * MINUTE, "1h30m"),
        (Duration(), 0, "0"),
        (Percent(), 10, "10%"),
        (Peers(), ipaddress.ip_network("127.0.0.1/32"), "127.0.0.1"),
        (Listed(Duration()), (15 * MINUTE, 2 * HOUR), "15m | 2h"),
        (Listed(Domain(), separator=","), ("a.example", "b.example"), "a.example, b.example"),
        (Endpoint(25), HostPort(host="::1", port=25), "[::1]:25"),
    ],
)
def test_values_are_shown_as_a_person_would_write_them(kind: Kind[Any], value: Any, text: str) -> None:
    assert kind.show(value) == text
