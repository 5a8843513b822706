"""Out to a real Exim over CHUNKING: what it passes on, whom it lets in, and what it asks to come again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.exim import PASSWORD, SIZE_LIMIT, USER, Exim, found
from tests.e2e.kit.mail import Client
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.fakes.certificates import Authority

pytestmark = pytest.mark.needs("openssl")


@dataclass
class World:
    """An Exim whose certificate says 127.0.0.1, what to trust it by, and a server that sends all to it."""

    exim: Exim
    trust: Path
    certificate: Path
    """One that Exim lets in as USER, for whoever shows it."""

    def plan(self, mechanism: str = "plain", user: str = USER, ssl: str = "") -> Plan:
        """All mail to Exim over verified TLS, with a login; "" = without one."""
        login = (
            f'<auth enabled="Y" override="{mechanism}"><username>{user}</username>'
            f"<password>{PASSWORD}</password></auth>"
        )
        return Plan(
            door={"maxline": 0},
            relays=(("", f"127.0.0.1:{self.exim.port}"),),
            relay_elements=(login if mechanism else "") + f'<ssl latent="Y" verify="Y" {ssl}/>',
            client_elements=f'<trust file="{self.trust}"/>',
        )


@pytest.fixture(scope="module")
def world(module_receiver: Receiver) -> Iterator[World]:
    try:
        found()
    except LookupError as missing:
        pytest.skip(f"{missing}: tests/run unpacks it")
    # Not below pytest's own directory, which only root may enter.
    directory = Path(tempfile.mkdtemp(prefix="mqcd-exim-"))
    authority = Authority(directory)
    chain = authority.sign("exim", "IP:127.0.0.1")
    exim = Exim(directory, module_receiver.port, chain, authority.certificate)
    try:
        exim.start()
        yield World(exim, authority.certificate, authority.sign(USER, "DNS:mqcd.test"))
    finally:
        exim.stop()
        print(exim.log()[-6000:])
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def server(world: World, make_module_server: MakeServer) -> Server:
    return make_module_server(world.plan()).start()


@pytest.fixture
def receiver(module_receiver: Receiver) -> Receiver:
    return module_receiver


CONTENTS = {
    "headers only": b"Subject: nothing more\r\n\r\n",
    "dots": b"Subject: dots\r\n\r\n.\r\n..\r\n.x\r\n...\r\n\r\n.\r\nend\r\n",
    "8 bit": b"Subject: octets\r\n\r\n" + bytes(n for n in range(1, 256) if n not in b"\r\n") * 3 + b"\r\n",
    "long line": b"Subject: long\r\n\r\n" + b"x" * 900_000 + b"\r\nend\r\n",
    "many chunks": b"Subject: large\r\n\r\n" + b".0123456789\r\n" * 200_000,
    "spaces": b"Subject: spaces\r\n\r\n \t \r\n\r\n\r\ntrailing   \r\n",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_what_exim_passes_on_is_what_was_sent(
    world: World, server: Server, receiver: Receiver, name: str
) -> None:
    recipient = f"{name.replace(' ', '-')}@example.test"
    mail.send(server.port, CONTENTS[name], recipient, options=["BODY=8BITMIME"])
    assert mail.sent_part(mail.beyond_others(receiver.to(recipient).content)) == CONTENTS[name]
    arrival = world.exim.logged(" <= ", f"for {recipient}")
    assert " K " in arrival, "Exim took it by another command than BDAT"


@pytest.fixture(scope="module")
def sender(make_module_server: MakeServer, module_receiver: Receiver) -> Iterator[Exim]:
    """An Exim that sends by BDAT to a server of ours, which sends to the receiver."""
    try:
        found()
    except LookupError as missing:
        pytest.skip(f"{missing}: tests/run unpacks it")
    plan = Plan(relays=(("", f"127.0.0.1:{module_receiver.port}"),), door={"maxline": 0})
    server = make_module_server(plan).start()
    directory = Path(tempfile.mkdtemp(prefix="mqcd-exim-"))
    authority = Authority(directory)
    chain = authority.sign("exim", "IP:127.0.0.1")
    exim = Exim(directory, server.port, chain, authority.certificate, chunks_to="*")
    try:
        exim.start()
        yield exim
    finally:
        exim.stop()
        print(exim.log()[-6000:])
        shutil.rmtree(directory)


@pytest.mark.parametrize("name", CONTENTS)
def test_what_exim_sends_in_chunks_arrives(sender: Exim, receiver: Receiver, name: str) -> None:
    recipient = f"in-{name.replace(' ', '-')}@example.test"
    mail.send(sender.port, CONTENTS[name], recipient, options=["BODY=8BITMIME"])
    # Exim's own Received field stands between ours and what was sent.
    assert mail.sent_part(receiver.to(recipient).content).partition(b" +0000\r\n")[2] == CONTENTS[name]
    assert " K " in sender.logged(" => ", recipient), "Exim sent it by another command than BDAT"


def test_one_messages_recipients_share_a_transaction(
    world: World, server: Server, receiver: Receiver
) -> None:
    three = [f"together{number}@example.test" for number in range(3)]
    mail.send(server.port, mail.message("together"), three)
    for recipient in three:
        assert mail.beyond_others(receiver.to(recipient).content).endswith(mail.message("together"))
    assert world.exim.logged(" <= ", *three)


@pytest.mark.parametrize("mechanism", ["plain", "cram_md5"])
def test_a_login_lets_mail_in(
    world: World, make_server: MakeServer, receiver: Receiver, mechanism: str
) -> None:
    server = make_server(world.plan(mechanism).but(client={"extCHUNKING": "N"})).start()
    recipient = f"{mechanism}@closed.test"
    mail.send(server.port, mail.message(mechanism), recipient)
    assert mail.sent_part(mail.beyond_others(receiver.to(recipient).content)) == mail.message(mechanism)
    authenticator = {"plain": "plain", "cram_md5": "cram"}[mechanism]
    arrival = world.exim.logged(f"A={authenticator}:{USER}", f"for {recipient}")
    assert " X=TLS" in arrival
    assert " K " not in arrival, "BDAT though it was forbidden"


def test_our_certificate_is_a_login_by_its_name(
    world: World, make_server: MakeServer, receiver: Receiver
) -> None:
    shown = f'certfile="{world.certificate}"'
    for number, initial in enumerate(("Y", "N")):
        plan = world.plan("external", ssl=shown)
        login = plan.relay_elements.replace("<auth ", f'<auth initrsp="{initial}" ')
        server = make_server(plan.but(relay_elements=login)).start()
        recipient = f"external-{number}@closed.test"
        mail.send(server.port, mail.message("external"), recipient)
        assert mail.sent_part(mail.beyond_others(receiver.to(recipient).content)) == mail.message("external")
        assert world.exim.logged(f"A=external:{USER}", f"for {recipient}")


def test_another_name_than_the_certificates_is_no_login(world: World, make_server: MakeServer) -> None:
    plan = world.plan("external", "other", f'certfile="{world.certificate}"')
    server = make_server(plan.but(queue={"retry_delays": "1h"})).start()
    mail.send(server.port, mail.message("stranger"), "other@closed.test")
    deferred = server.event("deferred", recipient="other@closed.test")
    assert (deferred["status"], deferred["phase"]) == ("4.7.8", "auth")
    assert "login refused: 535" in deferred["reply"]


def test_without_a_login_it_is_refused(world: World, make_server: MakeServer) -> None:
    server = make_server(world.plan("")).start()
    mail.send(server.port, mail.message("stranger"), "stranger@closed.test")
    bounced = server.event("bounced", recipient="stranger@closed.test")
    assert (bounced["phase"], bounced["code"], bounced["status"]) == ("rcpt", 550, "5.7.1")


def test_who_is_greylisted_comes_again(world: World, server: Server, receiver: Receiver) -> None:
    both = ["grey@example.test", "known@example.test"]
    mail.send(server.port, mail.message("grey"), both)
    deferred = server.event("deferred", recipient="grey@example.test")
    assert (deferred["code"], deferred["status"], deferred["phase"]) == (451, "4.7.1", "rcpt")
    assert mail.beyond_others(receiver.to("grey@example.test").content).endswith(mail.message("grey"))
    assert server.event("delivered", recipient="grey@example.test")["attempt"] == 2
    assert server.event("delivered", recipient="known@example.test")["attempt"] == 1
    assert [receiver.count(each) for each in both] == [1, 1]


def test_addresses_and_headers_beyond_ascii_are_passed_on(server: Server, receiver: Receiver) -> None:
    recipient, sender = "grüße@example.test", "absänder@origin.test"
    content = "Subject: größer\r\n\r\nwörter\r\n".encode()
    with Client(server.port) as client:
        assert "SMTPUTF8" in client.greet()
        client.envelope(sender, recipient, options=" BODY=8BITMIME SMTPUTF8")
        client.send(content + b".\r\n")
        assert client.reply().startswith("250 ")
    arrived = receiver.to(recipient)
    assert (arrived.sender, arrived.smtputf8) == (sender, True)
    assert mail.beyond_others(arrived.content).endswith(content)


def test_what_is_too_large_for_it_bounces_unsent(world: World, server: Server, receiver: Receiver) -> None:
    content = b"Subject: large\r\n\r\n" + (b"x" * 70 + b"\r\n") * (SIZE_LIMIT // 72 + 1)
    mail.send(server.port, content, "large@example.test", sender="sends@origin.test")
    bounced = server.event("bounced", recipient="large@example.test")
    assert bounced["status"] == "5.3.4"
    assert f"at most {SIZE_LIMIT}" in " ".join(receiver.to("sends@origin.test").content.decode().split())
    assert "large@example.test" not in world.exim.log()


def test_dsn_is_passed_on_and_exim_reports(server: Server, receiver: Receiver) -> None:
    wish = "NOTIFY=SUCCESS ORCPT=rfc822;first@other.test"
    words = "RET=HDRS ENVID=mqcd+2B17"
    mail.ask_for_reports(server.port, "dsn", "asks@origin.test", words, dsn=wish, silent="NOTIFY=NEVER")
    report = receiver.to("asks@origin.test").content.decode()
    assert "Reporting-MTA: dns; exim.test" in report
    assert "Original-Envelope-ID: mqcd+2B17" in report
    assert "Original-Recipient: rfc822;first@other.test" in report
    assert "silent@example.test" not in report
