"""Notifications and sockets of a service manager, by a manager of the test's own."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from mqcd.net.systemd import ALONE, Notifier, given_sockets


@pytest.mark.parametrize("abstract", [False, True])
def test_states_reach_the_manager(tmp_path: Path, abstract: bool) -> None:
    path = f"@mqcd-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path[1:] if abstract else path)
        manager.settimeout(10)
        environment = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000", "OTHER": "stays"}
        notifier = Notifier(environment)
        assert (notifier.watchdog_ms, environment) == (15_000, {"OTHER": "stays"})
        notifier.ready()
        notifier.alive()
        notifier.stopping()
        assert manager.recv(100) == f"READY=1\nMAINPID={os.getpid()}".encode()
        assert (manager.recv(100), manager.recv(100)) == (b"WATCHDOG=1", b"STOPPING=1")


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    ALONE.notifier.ready()


def test_another_process_watchdog_is_not_ours() -> None:
    assert Notifier({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}).watchdog_ms == 0


def test_sockets_have_their_names(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound, open(os.devnull) as other:
        first = 100
        os.dup2(bound.fileno(), first)
        os.dup2(other.fileno(), first + 1)
        environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "smtp:file"}
        try:
            found = given_sockets(environment, first)
            assert (list(found), environment) == (["smtp"], {})
            (given,) = found["smtp"]
            with given:
                assert given.getsockname() == bound.getsockname()
                assert not given.getblocking()
                assert not os.get_inheritable(given.fileno())
        finally:
            os.close(first + 1)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("environment", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_FDS": "x"}])
def test_what_is_not_ours_is_not_taken(environment: dict[str, str]) -> None:
    assert given_sockets(dict(environment)) == {}
