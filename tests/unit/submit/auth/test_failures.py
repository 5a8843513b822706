"""Failed logins by client and by user."""

from __future__ import annotations

import pytest

from mqcd.core.clients import WINDOW_MS
from mqcd.net.shared.used_rates import UsedRates
from mqcd.submit.auth.failures import KNOWN_MS, MOST_OF_CLIENT, MOST_OF_USER, Failures

ONE = WINDOW_MS // MOST_OF_CLIENT
"""When a client's first failure is forgiven."""


Tables = tuple[UsedRates, UsedRates]


@pytest.fixture
def tables() -> Tables:
    return UsedRates.alone(), UsedRates.alone()


@pytest.fixture
def failures(tables: Tables) -> Failures:
    return Failures(*tables)


def test_a_client_is_blocked_until_a_failure_is_forgiven(failures: Failures) -> None:
    for number in range(2 * MOST_OF_CLIENT):
        assert failures.client_blocked("192.0.2.1", 0) is (number >= MOST_OF_CLIENT)
        failures.failed("192.0.2.1", f"user{number}", 0)
    assert failures.client_blocked("192.0.2.1", ONE - 1)
    assert not failures.client_blocked("192.0.2.2", 0)
    assert not failures.client_blocked("192.0.2.1", ONE)
    failures.failed("192.0.2.1", "user", ONE)
    assert failures.client_blocked("192.0.2.1", ONE)


def test_failures_and_good_logins_count_over_all_processes(tables: Tables) -> None:
    processes = [Failures(*tables) for _ in range(4)]
    processes[0].succeeded("192.0.2.3", "alice", 0)
    for number in range(MOST_OF_USER):
        processes[number % 4].failed("192.0.2.1", "alice", 0)
    for each in processes:
        assert each.client_blocked("192.0.2.1", 0)
        assert each.user_blocked("192.0.2.2", "alice", 0)
        assert not each.user_blocked("192.0.2.3", "alice", 0)


def test_ipv6_clients_count_by_64(failures: Failures) -> None:
    for number in range(MOST_OF_CLIENT):
        failures.failed(f"2001:db8::{number:x}", "", 0)
    assert failures.client_blocked("2001:db8::ffff", 0)
    assert not failures.client_blocked("2001:db8:0:1::1", 0)


def test_a_user_is_blocked_only_for_strangers(failures: Failures) -> None:
    failures.succeeded("198.51.100.1", "alice", 0)
    for number in range(MOST_OF_USER):
        failures.failed(f"192.0.2.{number}", "alice", 0)
    assert failures.user_blocked("203.0.113.1", "alice", 0)
    assert not failures.user_blocked("198.51.100.1", "alice", 0)
    assert not failures.user_blocked("203.0.113.1", "bob", 0)


def test_failures_of_a_trusted_client_are_not_its_own(failures: Failures) -> None:
    for _ in range(MOST_OF_USER):
        failures.failed("192.0.2.1", "alice", 0, trusted=True)
    assert not failures.client_blocked("192.0.2.1", 0)
    assert failures.user_blocked("192.0.2.1", "alice", 0)


def test_a_good_login_forgives_no_failures(failures: Failures) -> None:
    for _ in range(MOST_OF_CLIENT):
        failures.failed("192.0.2.1", "bob", 0)
        failures.succeeded("192.0.2.1", "mallory", 0)
    assert failures.client_blocked("192.0.2.1", 0)


def test_a_client_is_known_for_a_time_after_its_last_login(failures: Failures) -> None:
    later = KNOWN_MS // 2
    for now in (0, later):
        failures.succeeded("192.0.2.1", "alice", now)
    end = later + KNOWN_MS
    for _ in range(MOST_OF_USER):
        failures.failed("192.0.2.2", "alice", end - 1)
    assert not failures.user_blocked("192.0.2.1", "alice", end - 1)
    assert failures.user_blocked("192.0.2.1", "alice", end)
