"""The log of a real server into a pipe that nobody reads, and into one whose reader is gone."""

from __future__ import annotations

import os
import smtplib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeReceiver
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.waiting import DEADLINE, poll

COUNT = 300
"""Messages whose log lines are several times what a pipe holds."""


@pytest.mark.parametrize("reader", ["sleeps", "went away"])
def test_an_unread_log_delays_neither_mail_nor_stop(
    tmp_path: Path, make_receiver: MakeReceiver, reader: str
) -> None:
    receiver = make_receiver()
    port, conf = free_port(), tmp_path / "mqcd.xml"
    conf.write_text(Plan(relays=relay(receiver.port), smtp_port=port, log_level="debug").xml())
    reading, writing = os.pipe()
    words = [sys.executable, "-m", "mqcd", "run", "-c", str(conf), "--var", str(tmp_path / "var")]
    with subprocess.Popen(words, stderr=writing) as server:
        os.close(writing)
        try:
            poll(lambda: b'"event":"ready"' in os.read(reading, 65536), "its start")
            if reader == "went away":
                os.close(reading)
            with smtplib.SMTP("127.0.0.1", port, timeout=DEADLINE) as client:
                for number in range(COUNT):
                    client.sendmail("me@origin.test", f"to{number}@ours.test", mail.message("hello"))
            receiver.to(f"to{COUNT - 1}@ours.test")
            server.terminate()
            assert server.wait(DEADLINE) == 0
        finally:
            server.kill()
    if reader == "sleeps":
        octets = os.read(reading, 65536)
        os.close(reading)
        assert octets.count(b"\n") > 10
