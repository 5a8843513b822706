"""Out to a real OpenSMTPD, which takes neither pipelining nor chunks nor SMTPUTF8."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.mail import Client
from tests.e2e.kit.opensmtpd import SIZE_LIMIT, OpenSmtpd, found
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server

pytestmark = pytest.mark.needs("unshare")


@pytest.fixture(scope="module")
def opensmtpd(module_receiver: Receiver) -> Iterator[OpenSmtpd]:
    try:
        found()
    except LookupError as missing:
        pytest.skip(f"{missing}: tests/run unpacks it, and only root can start it")
    # Not below pytest's own directory, which only root may enter.
    directory = Path(tempfile.mkdtemp(prefix="mqcd-opensmtpd-"))
    made = OpenSmtpd(directory, module_receiver.port)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        print(made.log()[-6000:])
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def server(opensmtpd: OpenSmtpd, make_module_server: MakeServer) -> Server:
    return make_module_server(Plan(relays=relay(opensmtpd.port))).start()


@pytest.fixture
def receiver(module_receiver: Receiver) -> Receiver:
    return module_receiver


HEAD = b"Date: Sat, 21 Nov 2026 20:00:00 +0000\r\nMessage-ID: <x@origin.test>\r\n"
"""Without these it would add them."""
CONTENTS = {
    "headers only": HEAD + b"Subject: nothing more\r\n\r\n",
    "dots": HEAD + b"Subject: dots\r\n\r\n.\r\n..\r\n.x\r\n...\r\n\r\n.\r\nend\r\n",
    "8 bit": HEAD
    + b"Subject: octets\r\n\r\n"
    + bytes(n for n in range(1, 256) if n not in b"\r\n")
    + b"\r\n",
    "large": HEAD + b"Subject: large\r\n\r\n" + b".0123456789\r\n" * 7_000,
}


@pytest.mark.parametrize("name", CONTENTS)
def test_what_it_passes_on_is_what_was_sent(server: Server, receiver: Receiver, name: str) -> None:
    recipient = f"{name.replace(' ', '-')}@example.test"
    mail.send(server.port, CONTENTS[name], recipient, options=["BODY=8BITMIME"])
    assert mail.sent_part(mail.beyond_others(receiver.to(recipient).content)) == CONTENTS[name]


def test_one_messages_recipients_share_a_transaction(server: Server, receiver: Receiver) -> None:
    three = [f"together{number}@example.test" for number in range(3)]
    mail.send(server.port, mail.message("together"), three)
    spids = {mail.spid_of(mail.beyond_others(receiver.to(each).content)) for each in three}
    assert len(spids) == 1
    told = [server.event("delivered", recipient=each) for each in three]
    assert len({line["reply"] for line in told}) == 1, "its reply names the message that it made of ours"


def test_what_it_refuses_bounces_and_the_rest_goes(server: Server, receiver: Receiver) -> None:
    mail.send(server.port, mail.message("mixed"), ["no@closed.test", "yes@example.test"])
    bounced = server.event("bounced", recipient="no@closed.test")
    assert (bounced["phase"], bounced["code"]) == ("rcpt", 550)
    assert receiver.to("yes@example.test").content.count(b"line 0 of mixed") == 1


def test_what_is_beyond_ascii_bounces_with_the_reason(server: Server, receiver: Receiver) -> None:
    with Client(server.port) as client:
        client.greet()
        client.envelope("sends@origin.test", "grüße@example.test", options=" BODY=8BITMIME SMTPUTF8")
        client.send("Subject: größer\r\n\r\nwörter\r\n.\r\n".encode())
        assert client.reply().startswith("250 ")
    bounced = server.event("bounced", recipient="grüße@example.test")
    assert bounced["status"] == "5.6.7"
    assert b"does not offer SMTPUTF8" in b" ".join(receiver.to("sends@origin.test").content.split())


def test_what_is_too_large_for_it_bounces_unsent(
    opensmtpd: OpenSmtpd, server: Server, receiver: Receiver
) -> None:
    content = HEAD + b"Subject: large\r\n\r\n" + (b"x" * 70 + b"\r\n") * (SIZE_LIMIT // 72 + 1)
    mail.send(server.port, content, "oversize@example.test", sender="big@origin.test")
    assert server.event("bounced", recipient="oversize@example.test")["status"] == "5.3.4"
    assert f"at most {SIZE_LIMIT}" in " ".join(receiver.to("big@origin.test").content.decode().split())
    assert "oversize@example.test" not in opensmtpd.log()


def test_dsn_is_passed_on_and_opensmtpd_reports(server: Server, receiver: Receiver) -> None:
    wish = "NOTIFY=SUCCESS ORCPT=rfc822;first@other.test"
    words = "RET=HDRS ENVID=mqcd+2B17"
    mail.ask_for_reports(server.port, "dsn", "asks@origin.test", words, dsn=wish)
    report = receiver.to("asks@origin.test").content.decode()
    assert "opensmtpd.test" in report
    assert "dsn@example.test" in report
    assert "line 0 of dsn" not in report
