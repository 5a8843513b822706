"""Failed logins by client and by user."""

from __future__ import annotations

from mqcd.core.clients import ENTRIES, WINDOW_MS
from mqcd.submit.auth.failures import MOST_OF_CLIENT, MOST_OF_USER, Failures


def test_a_client_is_blocked_until_its_window_is_over() -> None:
    failures = Failures()
    for number in range(MOST_OF_CLIENT):
        assert not failures.client_blocked("192.0.2.1", number)
        failures.failed("192.0.2.1", f"user{number}", number)
    assert failures.client_blocked("192.0.2.1", WINDOW_MS - 1)
    assert not failures.client_blocked("192.0.2.2", 0)
    assert not failures.client_blocked("192.0.2.1", WINDOW_MS)


def test_ipv6_clients_count_by_64() -> None:
    failures = Failures()
    for number in range(MOST_OF_CLIENT):
        failures.failed(f"2001:db8::{number:x}", "", 0)
    assert failures.client_blocked("2001:db8::ffff", 0)
    assert not failures.client_blocked("2001:db8:0:1::1", 0)


def test_a_user_is_blocked_only_for_strangers() -> None:
    failures = Failures()
    failures.succeeded("198.51.100.1", "alice")
    for number in range(MOST_OF_USER):
        failures.failed(f"192.0.2.{number}", "alice", 0)
    assert failures.user_blocked("203.0.113.1", "alice", 0)
    assert not failures.user_blocked("198.51.100.1", "alice", 0)
    assert not failures.user_blocked("203.0.113.1", "bob", 0)


def test_failures_of_a_trusted_client_are_not_its_own() -> None:
    failures = Failures()
    for _ in range(MOST_OF_USER):
        failures.failed("192.0.2.1", "alice", 0, trusted=True)
    assert not failures.client_blocked("192.0.2.1", 0)
    assert failures.user_blocked("192.0.2.1", "alice", 0)


def test_a_good_login_forgives_no_failures() -> None:
    failures = Failures()
    for _ in range(MOST_OF_CLIENT):
        failures.failed("192.0.2.1", "bob", 0)
        failures.succeeded("192.0.2.1", "mallory")
    assert failures.client_blocked("192.0.2.1", 0)


def test_memory_is_bounded_and_the_oldest_goes() -> None:
    failures = Failures()
    for _ in range(MOST_OF_CLIENT):
        failures.failed("192.0.2.1", "", 0)
    for number in range(ENTRIES):
        failures.failed(f"client {number}", "", 0)
    assert not failures.client_blocked("192.0.2.1", 0)
