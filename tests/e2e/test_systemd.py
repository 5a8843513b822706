"""The server under a service manager: it is given a socket, says when it is ready and that it lives."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.kit.plan import Plan
from tests.e2e.kit.server import ROOT
from tests.e2e.kit.waiting import DEADLINE

_STARTER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "in"}
os.execv(sys.executable, [sys.executable, "-m", "mqcd", *sys.argv[2:]])
"""


@pytest.mark.parametrize("shards", [1, 2])
def test_a_service_manager_hears_of_the_server(tmp_path: Path, shards: int) -> None:
    conf = tmp_path / "mqcd.xml"
    conf.write_text(Plan(smtp_port=1, queue={"shards": shards}).xml())
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.create_server(("127.0.0.1", 0)) as given,
    ):
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE)
        words = ("run", "-c", str(conf), "--var", str(tmp_path / "var"))
        process = subprocess.Popen(
            [sys.executable, "-c", _STARTER, str(given.fileno()), *words],
            pass_fds=[given.fileno()],
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"},
            cwd=ROOT,
        )
        try:
            assert manager.recv(100).split(b"\n") == [b"READY=1", b"MAINPID=%d" % process.pid]
            assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            with socket.create_connection(given.getsockname(), DEADLINE) as client:
                assert client.recv(100).startswith(b"220 mqcd.test")
            process.send_signal(signal.SIGTERM)
            while (said := manager.recv(100)) == b"WATCHDOG=1":
                pass
            assert said == b"STOPPING=1"
            assert process.wait(DEADLINE) == 0
        finally:
            process.kill()
            process.wait()
