"""How many clients may be connected."""

import os
from collections.abc import Iterator

import pytest

from mqcd.net.shared import tokens
from mqcd.net.shared.tokens import SharedTokens
from mqcd.submit.policy.capacity import Capacity, Peers
from tests.fakes.clock import FakeClock


def test_strangers_cannot_have_what_is_kept() -> None:
    capacity = Capacity(4, kept=1)
    for last in range(3):
        capacity.add(f"192.0.2.{last}")
    assert capacity.full("198.51.100.1", trusted=False)
    assert not capacity.full("198.51.100.1", trusted=True)


def test_a_network_may_have_what_is_left() -> None:
    capacity = Capacity(100)
    while not capacity.full("192.0.2.1", trusted=False):
        capacity.add("192.0.2.1")
    assert capacity.taken == 50
    assert capacity.full("192.0.2.200", trusted=False)
    assert not capacity.full("192.0.2.200", trusted=True)
    while not capacity.full("2001:db8::1", trusted=False):
        capacity.add("2001:db8:0:77::1")
    assert capacity.taken == 75
    for _ in range(20):
        capacity.remove("192.0.2.1")
    assert not capacity.full("192.0.2.1", trusted=False)


def test_a_network_may_have_a_few_while_there_is_room() -> None:
    capacity = Capacity(1000)
    for number in range(996):
        capacity.add(f"10.0.{number % 250}.1")
    for _ in range(4):
        assert not capacity.full("192.0.2.1", trusted=False)
        capacity.add("192.0.2.1")
    assert capacity.full("192.0.2.1", trusted=False)


@pytest.fixture(params=["alone", "of several shards"])
def peers(request: pytest.FixtureRequest) -> Iterator[Peers]:
    if request.param == "alone":
        yield Peers()
        return
    fd = tokens.make()
    yield Peers("door", SharedTokens(fd, 4, FakeClock().monotonic))
    os.close(fd)


def test_ipv6_clients_count_by_their_network(peers: Peers) -> None:
    assert [peers.add(f"2001:db8::{last}", 2) for last in "123"] == [True, True, False]
    assert peers.add("2001:db8:0:1::1", 2)
    peers.remove("2001:db8::1")
    assert peers.add("2001:db8::3", 2)


def test_ipv4_clients_count_by_their_address(peers: Peers) -> None:
    assert [peers.add("192.0.2.1", 1), peers.add("192.0.2.2", 1), peers.add("192.0.2.1", 1)] == [
        True,
        True,
        False,
    ]


def test_a_client_without_a_limit_has_no_limit(peers: Peers) -> None:
    assert all(peers.add("192.0.2.1", 0) for _ in range(100))
    for _ in range(100):
        peers.remove("192.0.2.1")
    assert peers.add("192.0.2.1", 1)


def test_clients_of_another_door_do_not_count() -> None:
    fd = tokens.make()
    shared = SharedTokens(fd, 4, FakeClock().monotonic)
    assert Peers("one", shared).add("192.0.2.1", 1)
    assert Peers("other", shared).add("192.0.2.1", 1)
    assert not Peers("one", shared).add("192.0.2.1", 1)
    os.close(fd)
