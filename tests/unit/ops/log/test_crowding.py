"""How many lines refusals may have."""

from mqcd.ops.log.observer import CLIENTS, MOST, WINDOW_MS, Crowd


def test_a_client_has_so_many_lines_in_a_window() -> None:
    crowd = Crowd()
    assert sum(crowd.admits(at, "192.0.2.1") for at in range(100)) == MOST
    assert crowd.admits(100, "192.0.2.2")
    assert not crowd.is_over(WINDOW_MS - 1)
    assert crowd.is_over(WINDOW_MS)
    assert crowd.left_out() == {"192.0.2.1": 100 - MOST}
    assert not crowd.is_over(WINDOW_MS)
    assert crowd.admits(WINDOW_MS, "192.0.2.1")


def test_a_clock_that_is_set_back_ends_the_window() -> None:
    crowd = Crowd()
    crowd.admits(WINDOW_MS, "192.0.2.1")
    assert crowd.is_over(0)


def test_many_clients_take_bounded_memory() -> None:
    crowd = Crowd()
    admitted = sum(crowd.admits(0, f"client {number}") for number in range(CLIENTS + 100))
    assert admitted == CLIENTS + MOST
    assert crowd.left_out() == {"": 100 - MOST}
