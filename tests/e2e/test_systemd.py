"""The server under a service manager: it is given sockets, says when it is ready and that it lives."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.kit.plan import Plan
from tests.e2e.kit.server import ROOT
from tests.e2e.kit.waiting import DEADLINE

_STARTER = """
import os, sys
given, names = sys.argv[1].split(","), sys.argv[2]
high = [os.dup2(int(descriptor), 100 + number) for number, descriptor in enumerate(given)]
for number, descriptor in enumerate(high):
    os.dup2(descriptor, 3 + number)
os.closerange(3 + len(given), 100 + len(given))
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(given)), "LISTEN_FDNAMES": names}
os.execv(sys.executable, [sys.executable, "-m", "mqcd", *sys.argv[3:]])
"""
_NAMES = ("in", "in", "submission", "unknown")
_SUBMISSION = """<listener name="submission" interface="127.0.0.1" port="2">
<server><smtpgreet>submits</smtpgreet></server></listener>"""


@pytest.mark.parametrize("shards", [1, 2])
def test_a_service_manager_hears_of_the_server(tmp_path: Path, shards: int) -> None:
    """It gives a listener a socket for each IP version, another listener one, and one to nobody."""
    conf = tmp_path / "mqcd.xml"
    conf.write_text(Plan(smtp_port=1, queue={"shards": shards}, more_listeners=_SUBMISSION).xml())
    with ExitStack() as opened:
        manager = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE)
        given = [
            opened.enter_context(socket.create_server((host, 0), family=family))
            for host, family in (
                ("127.0.0.1", socket.AF_INET),
                ("::1", socket.AF_INET6),
                ("127.0.0.1", socket.AF_INET),
                ("127.0.0.1", socket.AF_INET),
            )
        ]
        numbers = [each.fileno() for each in given]
        words = ("run", "-c", str(conf), "--var", str(tmp_path / "var"))
        process = subprocess.Popen(
            [sys.executable, "-c", _STARTER, ",".join(map(str, numbers)), ":".join(_NAMES), *words],
            pass_fds=numbers,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"},
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )
        try:
            assert manager.recv(100).split(b"\n") == [b"READY=1", b"MAINPID=%d" % process.pid]
            assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            for listening, name in zip(given[:3], _NAMES, strict=False):
                with socket.create_connection(listening.getsockname()[:2], DEADLINE) as client:
                    said = b"submits" if name == "submission" else b"ESMTP mqcd"
                    assert client.recv(100) == b"220 mqcd.test " + said + b"\r\n"
            process.send_signal(signal.SIGTERM)
            while (said := manager.recv(100)) == b"WATCHDOG=1":
                pass
            assert said == b"STOPPING=1"
            log = process.communicate(timeout=DEADLINE)[1].decode()
            assert process.returncode == 0
            assert log.count("no listener is named 'unknown'") == 1
        finally:
            process.kill()
            process.wait()
