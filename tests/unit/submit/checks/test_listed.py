"""Lists of clients and senders, and the file that holds them."""

from __future__ import annotations

import pytest

from mqcd.submit.checks.listed import MOST_REMARKS, BadList, SenderList, parse_blacklist

FILE = """
# clients
192.0.2.7
198.51.100.0/24   # a network
2001:db8:5::/48
203.0.113.77/30

# senders
spam@example.org
bad.example
.worse.example
bücher.example
"""


@pytest.mark.parametrize(
    ("client", "listed"),
    [
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("198.51.100.255", True),
        ("198.51.101.0", False),
        ("203.0.113.79", True),
        ("203.0.113.80", False),
        ("2001:db8:5:1::1", True),
        ("2001:db8:6::1", False),
        ("", False),
        ("unix", False),
    ],
)
def test_clients(client: str, listed: bool) -> None:
    assert parse_blacklist(FILE, "f").clients.has(client) is listed


@pytest.mark.parametrize(
    ("sender", "listed"),
    [
        ("spam@example.org", True),
        ("SPAM@Example.ORG", True),
        ("ham@example.org", False),
        ("any@bad.example", True),
        ("any@sub.bad.example", False),
        ("any@worse.example", False),
        ("any@a.b.worse.example", True),
        ("any@xn--bcher-kva.example", True),
        ("", False),
    ],
)
def test_senders(sender: str, listed: bool) -> None:
    assert parse_blacklist(FILE, "f").senders.has(sender) is listed


def test_the_null_sender_can_be_listed() -> None:
    assert parse_blacklist("<>", "f").senders.has("")


@pytest.mark.parametrize(
    "line", ["192.0.2.300", "10.0.0.0/33", "2001:db8::/129", "a b", "@", "a@", "a@b@c", "<a@b>", "/24", "..a"]
)
def test_a_wrong_line_is_named_with_its_file(line: str) -> None:
    with pytest.raises(BadList, match=r"^/etc/bl:3: ") as caught:
        parse_blacklist(f"192.0.2.1\n\n{line}\n", "/etc/bl")
    assert len(str(caught.value).splitlines()) == 1


def test_many_wrong_lines_are_counted() -> None:
    with pytest.raises(BadList) as caught:
        parse_blacklist("a b\n" * (MOST_REMARKS + 5), "f")
    assert str(caught.value).splitlines()[-1] == "and 5 more"


@pytest.mark.parametrize(
    ("sender", "rank"),
    [
        ("ann@example.org", 3),
        ("bob@example.org", 2),
        ("ann@sub.example.org", 1),
        ("ann@example.net", 0),
        ("", 0),
    ],
)
def test_the_closest_entry_counts(sender: str, rank: int) -> None:
    entries = SenderList(("ann@example.org", "example.org", ".example.org", ".org.invalid"))
    assert entries.rank(sender) == rank
