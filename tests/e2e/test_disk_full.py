"""A full disk under load, each root by itself: 4xx at the door, nothing lost, and on it goes by itself."""

from __future__ import annotations

import smtplib

import pytest

from tests.e2e.conftest import MakeServer, MakeSmall
from tests.e2e.kit import mail
from tests.e2e.kit.ledger import arrivals, stopped
from tests.e2e.kit.load import Load, SmtpSource
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Line, Server
from tests.e2e.kit.waiting import Board, poll
from tests.e2e.test_crash import JOURNAL, some_content

PATIENCE = 40.0
"""Seconds: what is full is probed every 10 s."""


class CandidLoad(Load):
    """A load that also tells how it was refused."""

    codes: Board[int]

    def _send(self, client: smtplib.SMTP, token: str) -> None:
        try:
            super()._send(client, token)
        except smtplib.SMTPResponseException as error:
            self.codes.put(error.smtp_code)
            raise
        except smtplib.SMTPRecipientsRefused as error:
            for code, _ in error.recipients.values():
                self.codes.put(code)
            raise


def _told(line: Line) -> bool:
    """Errors that a full disk is to be told by."""
    text = str(line)
    return "No space left" in text or "octets are free" in text


@pytest.mark.needs("smtp-source")
@pytest.mark.slow
@pytest.mark.parametrize("root", ["queue", "spool", "events"])
def test_a_full_disk_under_load(
    make_small: MakeSmall, make_server: MakeServer, receiver: Receiver, root: str
) -> None:
    server = make_server(Plan(relays=relay(receiver.port), journal=JOURNAL))
    small = make_small(server.var / root)
    server.faults_expected = _told
    server.start()
    load = CandidLoad(server.port, 3, some_content)
    load.codes = Board()
    with load, SmtpSource(server.port):
        load.more(60)
        small.fill()
        load.codes.first(lambda _: True, "a refusal")
        poll(lambda: _is_full(server, root), f"/readyz naming {root}")
        assert server.metrics()["mqcd_refused_total{store}"] > 0
        small.empty()
        load.acknowledged.several(
            lambda _: True,
            60,
            "mail that is taken again",
            after=len(load.acknowledged),
            seconds=PATIENCE,
        )
    poll(lambda: server.page("/readyz")[0] == 200, "being ready again", seconds=PATIENCE)
    assert {code // 100 for code in load.codes.all()} == {4}

    for recipient in load.acknowledged.all():
        arrived = receiver.to(recipient)
        assert mail.sent_part(arrived.content) == some_content(recipient.removesuffix("@load.test"))
    for area in ("incoming", "deferred", "bounces"):
        server.metric(f"mqcd_queue_recipients{{{area}}}", 0)
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    assert ledger.count("outcome-unknown") == {}
    came = arrivals([receiver])
    assert came == ledger.count("accepted"), "what was accepted came, once"


@pytest.mark.slow
@pytest.mark.parametrize("root", ["queue", "spool", "events"])
def test_a_stop_on_a_full_disk_ends_in_time_and_loses_nothing(
    make_small: MakeSmall, make_server: MakeServer, receiver: Receiver, root: str
) -> None:
    server = make_server(Plan(relays=relay(receiver.port), journal=JOURNAL))
    small = make_small(server.var / root)
    server.faults_expected = _told
    server.start()
    load = CandidLoad(server.port, 3, some_content)
    load.codes = Board()
    with load:
        load.more(60)
        small.fill()
        load.codes.first(lambda _: True, "a refusal")
        assert server.stop() == 0
    small.empty()
    server.start()
    for recipient in load.acknowledged.all():
        receiver.to(recipient)
    server.metric("mqcd_queue_recipients{incoming}", 0)
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    came = arrivals([receiver])
    assert came.keys() == ledger.count("accepted").keys()
    assert ledger.surprises(came) == {}


@pytest.mark.parametrize("root", ["queue", "spool", "events"])
def test_a_start_on_a_full_disk_fails_and_a_later_succeeds(
    make_small: MakeSmall, make_server: MakeServer, receiver: Receiver, root: str
) -> None:
    server = make_server(Plan(relays=relay(receiver.port), journal=JOURNAL))
    server.faults_expected = _told
    small = make_small(server.var / root)
    small.fill()
    if root == "events":
        # Nothing is written there by a start: it comes up, and takes no mail.
        server.start()
        assert _is_full(server, root)
        small.empty()
        poll(lambda: server.page("/readyz")[0] == 200, "being ready", seconds=PATIENCE)
    else:
        server.launch()
        assert server.ended() == 1
        [said] = [line for line in server.lines.all() if line.get("level") == "error"]
        assert "cannot start" in said["msg"]
        assert f": {server.var / root}" in said["msg"]
        small.empty()
        server.start()
    mail.send(server.port, mail.message("after"), "after@load.test")
    receiver.to("after@load.test")
    assert server.stop() == 0


def _is_full(server: Server, root: str) -> bool:
    status, body = server.page("/readyz")
    return status == 503 and str(server.var / root) in body
