"""Out to a real Postfix: what it passes on is, from our Received header on, what was sent, byte for byte."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.mail import Client
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.postfix import Postfix
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server

pytestmark = pytest.mark.needs("postfix")

SAMPLES = mail.sample_files()
LARGE = 30 * 1024 * 1024
OLD_FASHIONED = "127.0.0.9"
"""Whom Postfix does not offer 8BITMIME."""


@pytest.fixture(scope="module")
def postfix(module_receiver: Receiver) -> Iterator[Postfix]:
    if os.geteuid() != 0:
        pytest.skip("Postfix changes between users: only root can start it")
    # Not below pytest's own directory, which only root may enter.
    directory = Path(tempfile.mkdtemp(prefix="mqcd-postfix-"))
    made = Postfix(
        directory,
        module_receiver.port,
        {"smtpd_discard_ehlo_keyword_address_maps": f"inline:{{{{{OLD_FASHIONED}=8bitmime}}}}"},
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()
        print("".join(made.log.all()[-40:]))
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def server(make_module_server: MakeServer, postfix: Postfix) -> Iterator[Server]:
    plan = Plan(relays=relay(postfix.port), door={"maxline": 0})
    server = make_module_server(plan).start()
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def receiver(module_receiver: Receiver) -> Receiver:
    return module_receiver


def came_through(receiver: Receiver, recipient: str) -> bytes:
    """What Postfix passed on, without its own headers and ours."""
    return mail.sent_part(mail.beyond_others(receiver.to(recipient).content))


def with_headers_ended(content: bytes) -> bytes:
    """What Postfix cannot be kept from: an empty line where text follows headers without one."""
    headers = re.match(rb"(?:[!-9;-~]+[ \t]*:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*)*", content)
    end = headers.end() if headers else 0
    return content if content.startswith(b"\r\n", end) else content[:end] + b"\r\n" + content[end:]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_messages_of_cpythons_email_tests(server: Server, receiver: Receiver, sample: Path) -> None:
    content = mail.with_crlf(sample.read_bytes())
    recipient = f"{sample.stem}@example.test"
    mail.send(server.port, content, recipient)
    assert came_through(receiver, recipient) == with_headers_ended(content)


CONTENTS = {
    "eight-bit": b"Subject: latin\r\n\r\n" + bytes(range(128, 256)) * 3 + b"\r\n",
    "dot-lines": b"Subject: dots\r\n\r\n.\r\n..\r\n...\r\n.a\r\n..b\r\n \r\n.\r\n",
    "empty-body": b"Subject: no body\r\n\r\n",
    "long-line": b"Subject: long\r\n\r\n" + b"x" * 100_000 + b"\r\n",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_content_of_every_shape(server: Server, receiver: Receiver, name: str) -> None:
    recipient = f"{name}@example.test"
    mail.send(server.port, CONTENTS[name], recipient, options=["BODY=8BITMIME"])
    assert came_through(receiver, recipient) == CONTENTS[name]


def test_smtputf8(server: Server, receiver: Receiver) -> None:
    content = "From: Jörg <jörg@bücher.test>\r\nSubject: Grüße, 你好\r\n\r\nπ\r\n".encode()
    with Client(server.port) as client:
        client.greet()
        client.envelope("jörg@bücher.test", "用户@例え.test", options=" BODY=8BITMIME SMTPUTF8")
        client.send(content + b".\r\n")
        assert client.reply().startswith("250 ")
    assert came_through(receiver, "用户@例え.test") == content


def test_a_large_message(server: Server, receiver: Receiver) -> None:
    line = b"x" * 70 + b"\r\n"
    content = b"Subject: large\r\n\r\n" + line * (LARGE // len(line))
    mail.send(server.port, content, "large@example.test")
    assert came_through(receiver, "large@example.test") == content


def test_several_recipients_travel_together(server: Server, receiver: Receiver) -> None:
    recipients = [f"several-{number}@example.test" for number in range(10)]
    mail.send(server.port, mail.message("several"), recipients)
    replies = {server.event("delivered", recipient=recipient)["reply"] for recipient in recipients}
    assert len(replies) == 1, "one transaction, hence one queue id of Postfix"
    assert "queued as" in replies.pop()
    for recipient in recipients:
        assert came_through(receiver, recipient) == mail.message("several")


def test_8_bit_content_comes_back_where_it_is_not_taken(
    make_server: MakeServer, postfix: Postfix, receiver: Receiver
) -> None:
    ways = f'<zones><zone name="old" sources="{OLD_FASHIONED}"><match/></zone></zones>'
    server = make_server(Plan(relays=relay(postfix.port), ways=ways)).start()
    eight = ["BODY=8BITMIME"]
    mail.send(server.port, mail.message("seven"), "seven@example.test", options=eight)
    assert came_through(receiver, "seven@example.test") == mail.message("seven")
    sender = "octets@origin.test"
    mail.send(server.port, CONTENTS["eight-bit"], "eight@example.test", options=eight, sender=sender)
    bounced = server.event("bounced", recipient="eight@example.test")
    assert (bounced["status"], bounced["phase"]) == ("5.6.3", "mail")
    # The report goes by the same relay: it must not need what it tells of.
    report = receiver.to(sender).content
    assert b"does not offer 8BITMIME" in b" ".join(report.split())
    assert b"Subject: latin" in report
    assert report.isascii()
