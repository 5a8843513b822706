"""The memory of used rates that processes share."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from mqcd.config.settings import Rate
from mqcd.deliver.lanes.rates import Limit, Scope, SharedLimit, limit_of
from mqcd.net.shared import used_rates
from mqcd.net.shared.used_rates import UsedRates

S = 1_000_000_000


@pytest.fixture
def fd() -> Iterator[int]:
    made = used_rates.make()
    yield made
    os.close(made)


def test_what_one_has_used_all_see(fd: int) -> None:
    one, other = UsedRates(fd), UsedRates(fd)
    one.use("lane a", 3 * S, 10 * S)
    assert (other.ahead("lane a", 0), other.ahead("lane b", 0)) == (13 * S, 0)
    other.use("lane a", S, 11 * S)
    assert one.ahead("lane a", 0) == 14 * S
    one.use("lane a", S, 20 * S)
    assert other.ahead("lane a", 0) == 21 * S


def test_more_than_a_number_can_say_is_the_largest(fd: int) -> None:
    used = UsedRates(fd)
    used.use("lane a", (1 << 64) + S, 10 * S)
    used.use("lane a", S, 10 * S)
    assert used.ahead("lane a", 0) == (1 << 64) - 1
    used.give_back("lane a", (1 << 64) + S)
    assert used.ahead("lane a", 0) == 0


def test_many_names_have_numbers_of_their_own(fd: int) -> None:
    used = UsedRates(fd)
    for number in range(2000):
        used.use(f"lane {number}", (number + 1) * S, 0)
    assert [used.ahead(f"lane {number}", 0) for number in range(2000)] == [(n + 1) * S for n in range(2000)]


def test_a_place_is_free_once_all_is_regained(fd: int) -> None:
    used = UsedRates(fd)
    for number in range(100_000):
        used.use(f"lane {number}", S, 2 * S * number)
    assert used.ahead("lane 99999", 2 * S * 99_999) == S


def test_names_without_a_place_share_one() -> None:
    fd = used_rates.make(places=2)
    used = UsedRates(fd)
    for name in ("a", "b", "c", "c", "c"):
        used.use(name, S, S)
    # Two have a place; what the third uses counts there, and is seen there.
    assert sorted(used.ahead(name, S) for name in ("a", "b", "c")) == [S, 4 * S, 4 * S]
    os.close(fd)


def test_nobody_can_tell_which_names_share_a_place(fd: int) -> None:
    other = used_rates.make()
    for each in (fd, other):
        UsedRates(each).use("lane a", S, S)
    places = [os.pread(each, os.fstat(each).st_size, 16) for each in (fd, other)]
    assert places[0] != places[1]
    os.close(other)


def test_what_is_not_shared_leaves_no_descriptor() -> None:
    before = os.listdir("/proc/self/fd")
    made = UsedRates.alone()
    made.use("lane a", S, S)
    assert made.ahead("lane a", S) == S
    del made
    assert os.listdir("/proc/self/fd") == before


def test_a_place_outlives_its_user(fd: int) -> None:
    pid = os.fork()
    if not pid:
        UsedRates(fd).use("lane a", 5 * S, S)
        os._exit(0)
    os.waitpid(pid, 0)
    assert UsedRates(fd).ahead("lane a", 0) == 6 * S


@pytest.mark.parametrize(("count", "per"), [(10, 1000), (1, 1000), (500, 3_600_000)])
def test_one_process_has_the_whole_rate(fd: int, count: int, per: int) -> None:
    rate = Rate(count=count, per=per)
    alone, shared = Limit(Scope.LANE, rate), limit_of(Scope.LANE, "a", rate, UsedRates(fd))
    assert isinstance(shared, SharedLimit)
    chance = random.Random(1)
    now = 1_000_000
    for _ in range(300):
        now += chance.randrange(3 * rate.per // rate.count)
        size = chance.randint(1, alone.burst)
        assert abs(alone.wait(size, now) - shared.wait(size, now)) <= 1
        if not max(alone.wait(size, now), shared.wait(size, now)):
            alone.take(size, now)
            shared.take(size, now)


def test_four_processes_together_have_the_rate(fd: int) -> None:
    rate = Rate(count=10, per=1000)
    limits = [SharedLimit(Scope.LANE, "a", rate, UsedRates(fd)) for _ in range(4)]
    began = now = 5_000
    sent = [0, 0, 0, 0]
    chance = random.Random(2)
    while now < began + 60_000:
        for number in chance.sample(range(4), 4):
            if not limits[number].wait(1, now):
                limits[number].take(1, now)
                sent[number] += 1
        now += 7
    assert sum(sent) == pytest.approx(10 * 60 + limits[0].burst, abs=2)
    assert min(sent) > 100


def test_a_limit_is_full_when_all_is_regained(fd: int) -> None:
    limit = SharedLimit(Scope.LANE, "a", Rate(count=10, per=1000), UsedRates(fd))
    assert limit.is_full(1000)
    limit.take(1, 1000)
    assert not limit.is_full(1000)
    assert limit.is_full(1100)
