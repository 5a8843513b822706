"""Debian's rspamd behind the filter that ships: its actions, and mail without it."""

from __future__ import annotations

import smtplib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.waiting import DEADLINE, poll

pytestmark = [pytest.mark.needs("rspamd"), pytest.mark.slow, pytest.mark.timeout(300)]

CONFIG = """
options {{
  pidfile = "{base}/pid"; dbdir = "{base}"; tempdir = "{base}"; filters = "";
  enable_test_patterns = true; disable_hyperscan = true;
  url_tld = "/usr/share/rspamd/effective_tld_names.dat";
  dns {{ nameserver = ["127.0.0.1:1"]; timeout = 10ms; retransmits = 1; }}
}}
logging {{ type = "console"; level = "warning"; }}
worker "normal" {{ bind_socket = "127.0.0.1:{port}"; count = 1; }}
actions {{ reject = 15; add_header = 6; greylist = 4; }}
"""
TEST = "JS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"
"""rspamd's test pattern, behind a letter that names the action."""


class Rspamd:
    """One that runs."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        config = directory / "rspamd.conf"
        config.write_text(CONFIG.format(base=directory, port=self.port))
        with (directory / "rspamd.log").open("wb") as out:
            # -i: as root too; its workers have nothing to protect here.
            command = ["rspamd", "-f", "-i", "-c", str(config)]
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture
def rspamd(tmp_path: Path) -> Iterator[Rspamd]:
    (tmp_path / "rspamd").mkdir()
    started = Rspamd(tmp_path / "rspamd")
    try:
        # It compiles its list of domains first.
        poll(started.answers, "rspamd", seconds=200)
        yield started
    finally:
        started.stop()


def send(port: int, token: str, body: str) -> None:
    content = f"From: a@origin.test\r\nSubject: {token}\r\n\r\n{body}\r\n"
    with smtplib.SMTP("127.0.0.1", port, timeout=DEADLINE) as client:
        client.sendmail("a@origin.test", [f"{token}@ours.test"], content)


def test_actions_of_rspamd(make_server: MakeServer, receiver: Receiver, rspamd: Rspamd) -> None:
    options = f"url=http://127.0.0.1:{rspamd.port} | timeout=20s | failopen=Y"
    shipped = "mqcd.submit.filters.rspamd:Rspamd"
    door = f'<filter class="{shipped}">{options}</filter>'
    server = make_server(Plan(relays=relay(receiver.port), door_elements=door))
    server.faults_expected = lambda line: "rspamd cannot be asked" in str(line.get("msg"))
    server.start()
    send(server.port, "ham", "hello")
    send(server.port, "marked", f"Y{TEST}")
    with pytest.raises(smtplib.SMTPDataError) as refused:
        send(server.port, "spam", f"X{TEST}")
    assert refused.value.smtp_code == 550
    assert b"X-Spam: Yes\r\n" not in receiver.to("ham@ours.test").content
    assert b"X-Spam: Yes\r\n" in receiver.to("marked@ours.test").content
    rspamd.stop()
    send(server.port, "unasked", f"X{TEST}")
    receiver.to("unasked@ours.test")
    assert receiver.count("spam@ours.test") == 0
    assert server.stop() == 0
