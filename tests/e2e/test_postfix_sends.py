"""In from a real Postfix: it passes on what a sender wants to hear, and we report it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.postfix import Postfix
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server

pytestmark = pytest.mark.needs("postfix")


@pytest.fixture
def server(make_server: MakeServer, receiver: Receiver) -> Server:
    return make_server(Plan(relays=relay(receiver.port))).start()


@pytest.fixture
def postfix(server: Server) -> Iterator[Postfix]:
    if os.geteuid() != 0:
        pytest.skip("Postfix changes between users: only root can start it")
    # Not below pytest's own directory, which only root may enter.
    directory = Path(tempfile.mkdtemp(prefix="mqcd-postfix-"))
    made = Postfix(directory, server.port)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(directory)


def test_postfix_passes_dsn_and_we_report(postfix: Postfix, server: Server, receiver: Receiver) -> None:
    wishes = {"wanted": "NOTIFY=SUCCESS ORCPT=rfc822;first@other.test", "silent": "NOTIFY=NEVER"}
    mail.ask_for_reports(postfix.port, "dsn", "asks@origin.test", "RET=HDRS ENVID=mqcd+2B17", **wishes)
    report = receiver.to("asks@origin.test").content.decode()
    assert "Reporting-MTA: dns; mqcd.test" in report
    assert "Original-Envelope-Id: mqcd+17" in report
    assert "Original-Recipient: rfc822; first@other.test" in report
    assert "Action: relayed" in report
    assert "silent@example.test" not in report
    header, _ = mail.split(receiver.to("wanted@example.test").content)
    assert header["protocol"] == b"ESMTP"
    assert server.event("accepted", recipient="silent@example.test")["origin"] == "smtp"
