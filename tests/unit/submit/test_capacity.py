"""How many clients may be connected."""

from mqcd.submit.capacity import Capacity, Peers


def test_strangers_cannot_have_what_is_kept() -> None:
    capacity = Capacity(4, kept=1)
    capacity.taken = 3
    assert capacity.full(trusted=False)
    assert not capacity.full(trusted=True)


def test_ipv6_clients_count_by_their_network() -> None:
    peers = Peers()
    peers.add("2001:db8::1")
    peers.add("2001:db8::2")
    assert peers["2001:db8::3"] == 2
    assert peers["2001:db8:0:1::1"] == 0
    peers.remove("2001:db8::1")
    assert peers["2001:db8::2"] == 1


def test_ipv4_clients_count_by_their_address() -> None:
    peers = Peers()
    peers.add("192.0.2.1")
    assert peers["192.0.2.2"] == 0
