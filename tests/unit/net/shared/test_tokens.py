"""Tokens of several processes: no more than there are, and none lost with a process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from mqcd.net.shared.tokens import LEAVE_MS, SharedTokens, make
from tests.fakes.clock import FakeClock


@pytest.fixture
def fd() -> Iterator[int]:
    made = make()
    yield made
    os.close(made)


@pytest.fixture
def tokens(fd: int) -> SharedTokens:
    return SharedTokens(fd, 4, FakeClock().monotonic)


def elsewhere(work: Callable[[], bool]) -> bool:
    """What another process finds; it ends at once, whatever it holds."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    code = 2
    try:
        code = int(not work())
    finally:
        os._exit(code)


def test_one_process_takes_no_more_than_there_are(tokens: SharedTokens) -> None:
    taken = [tokens.take("site", 2) for _ in range(3)]
    assert taken[2] is None
    assert len(set(taken)) == 3


def test_names_do_not_share(tokens: SharedTokens) -> None:
    assert tokens.take("one.example", 1) is not None
    assert tokens.take("other.example", 1) is not None


def test_processes_share(fd: int, tokens: SharedTokens) -> None:
    held = tokens.take("site", 1)
    other = SharedTokens(fd, 4, FakeClock().monotonic)
    assert elsewhere(lambda: other.take("site", 1) is None)
    assert elsewhere(lambda: other.take("site", 2) is not None)
    assert held is not None
    tokens.give(held)
    assert elsewhere(lambda: other.take("site", 1) is not None)


def test_a_process_that_ends_gives_all_back(fd: int) -> None:
    clock = FakeClock()
    other = SharedTokens(fd, 4, clock.monotonic)
    assert elsewhere(lambda: other.take("site", 1) is not None)
    assert SharedTokens(fd, 4, clock.monotonic).take("site", 1) is not None


def test_what_was_given_back_is_left_to_others_first(fd: int) -> None:
    clock = FakeClock()
    tokens = SharedTokens(fd, 4, clock.monotonic)
    held = tokens.take("site", 1)
    assert held is not None
    tokens.give(held)
    assert tokens.take("site", 1) is None
    clock.advance(LEAVE_MS)
    assert tokens.take("site", 1) == held


def test_tokens_given_back_are_forgotten_in_time(fd: int) -> None:
    clock = FakeClock()
    tokens = SharedTokens(fd, 4, clock.monotonic)
    for number in range(1000):
        held = tokens.take(f"site{number}.example", 1)
        assert held is not None
        tokens.give(held)
        clock.advance(1)
    assert len(tokens._left) <= LEAVE_MS


def test_a_token_may_be_taken_again_at_once(tokens: SharedTokens) -> None:
    held = tokens.take("client", 1)
    assert held is not None
    tokens.give(held, at_once=True)
    assert tokens.take("client", 1) == held
