"""Out to a real Postfix that wants TLS and a login: what it takes, and what becomes of the rest."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.postfix import Postfix
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.saslauth import SaslServer
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import poll
from tests.fakes.certificates import Authority

pytestmark = pytest.mark.needs("postfix", "openssl")

USER, PASSWORD = "relay@mqcd.test", "s3cret of the relay"
SIZE_LIMIT = 100_000


@dataclass
class World:
    """A Postfix whose certificate says 127.0.0.1, and what to trust it by."""

    postfix: Postfix
    trust: Path
    secret: Path
    certificate: Path
    """One that Postfix lets in, for whoever shows it."""

    def plan(
        self, auth: str = "", ssl: str = 'latent="Y" verify="Y"', host: str = "", trust: bool = True
    ) -> Plan:
        """All mail to Postfix, with the login unless `auth` says another."""
        login = (
            auth or f'<auth enabled="Y"><username>{USER}</username><password file="{self.secret}"/></auth>'
        )
        return Plan(
            relays=(("", host or f"127.0.0.1:{self.postfix.port}"),),
            relay_elements=f"{login}<ssl {ssl}/>",
            client_elements=f'<trust file="{self.trust}"/>' if trust else "",
            queue={"retry_delays": "1h"},
        )

    def logged(self, text: str) -> str:
        """A line of Postfix's log that has this text, now or later."""
        return self.postfix.log.first(lambda line: text in line, f"{text!r} in Postfix's log")


@pytest.fixture(scope="module")
def world(module_receiver: Receiver) -> Iterator[World]:
    if os.geteuid() != 0:
        pytest.skip("Postfix changes between users: only root can start it")
    # Not below pytest's own directory, which only root may enter.
    directory = Path(tempfile.mkdtemp(prefix="mqcd-postfix-"))
    authority = Authority(directory)
    chain = authority.sign("postfix", "IP:127.0.0.1")
    users = SaslServer({USER: PASSWORD})
    postfix = Postfix(
        directory,
        module_receiver.port,
        {
            "mynetworks": "",
            "smtpd_relay_restrictions": "permit_sasl_authenticated, permit_tls_all_clientcerts, reject",
            "smtpd_tls_ask_ccert": "yes",
            "smtpd_tls_CAfile": str(authority.certificate),
            "smtpd_tls_chain_files": str(chain),
            "smtpd_tls_security_level": "may",
            "smtpd_tls_auth_only": "yes",
            "smtpd_sasl_auth_enable": "yes",
            "smtpd_sasl_type": "dovecot",
            "smtpd_sasl_path": f"inet:127.0.0.1:{users.port}",
            "smtpd_tls_received_header": "yes",
            "smtpd_sasl_authenticated_header": "yes",
            "message_size_limit": str(SIZE_LIMIT),
        },
    )
    secret = directory / "relay.secret"
    secret.write_text(PASSWORD + "\n")
    try:
        postfix.start()
        yield World(postfix, authority.certificate, secret, authority.sign("mqcd", "DNS:mqcd.test"))
    finally:
        postfix.stop()
        users.close()
        print("".join(postfix.log.all()[-60:]))
        shutil.rmtree(directory)


@pytest.fixture
def receiver(module_receiver: Receiver) -> Receiver:
    return module_receiver


def send(server: Server, recipient: str) -> bytes:
    content = mail.message(recipient.partition("@")[0])
    mail.send(server.port, content, recipient)
    return content


def by(mechanism: str) -> str:
    return (
        f'<auth enabled="Y" override="{mechanism}"><username>{USER}</username>'
        f"<password>{PASSWORD}</password></auth>"
    )


@pytest.mark.parametrize("mechanism", ["plain", "login", "cram_md5"])
def test_mail_goes_over_verified_tls_with_a_login(
    world: World, make_server: MakeServer, receiver: Receiver, mechanism: str
) -> None:
    server = make_server(world.plan(by(mechanism))).start()
    recipient = f"{mechanism}@example.test"
    content = send(server, recipient)
    arrived = receiver.to(recipient).content
    assert mail.sent_part(mail.beyond_others(arrived)) == content
    assert b"with ESMTPSA" in arrived
    assert f"Authenticated sender: {USER}".encode() in arrived
    name = mechanism.upper().replace("_", "-")
    assert f"sasl_username={USER}" in world.logged(f"sasl_method={name}")
    assert server.event("delivered", recipient=recipient)["tls"].startswith("TLSv1.")
    assert server.stop() == 0
    assert PASSWORD not in server.history(10_000)


def test_a_connection_may_begin_with_tls(world: World, make_server: MakeServer, receiver: Receiver) -> None:
    host = f"127.0.0.1:{world.postfix.wrapped_port}"
    server = make_server(world.plan(ssl='latent="N" verify="Y"', host=host)).start()
    content = send(server, "wrapped@example.test")
    assert mail.sent_part(mail.beyond_others(receiver.to("wrapped@example.test").content)) == content


def test_a_certificate_of_ours_lets_us_in(world: World, make_server: MakeServer, receiver: Receiver) -> None:
    no_login = "<auth enabled='N'/>"
    shown = f'latent="Y" mandatory="Y" certfile="{world.certificate}"'
    server = make_server(world.plan(no_login, ssl=shown)).start()
    content = send(server, "certified@example.test")
    assert mail.sent_part(mail.beyond_others(receiver.to("certified@example.test").content)) == content
    other = make_server(world.plan(no_login, ssl='latent="Y" mandatory="Y"')).start()
    send(other, "unknown@example.test")
    assert other.event("bounced", recipient="unknown@example.test")["phase"] == "rcpt"


@pytest.mark.parametrize(
    ("what", "status", "text"),
    [
        ("wrong password", "4.7.8", "login refused: 535"),
        ("unknown authority", "4.7.5", "certificate not accepted"),
        ("other name", "4.7.5", "certificate not accepted"),
        ("a login, and nothing said of verify", "4.7.5", "certificate not accepted"),
    ],
)
def test_what_the_relay_will_not_have_waits(
    world: World, make_server: MakeServer, what: str, status: str, text: str
) -> None:
    plan = {
        "wrong password": world.plan(by("plain").replace(PASSWORD, "another password")),
        "unknown authority": world.plan(trust=False),
        "a login, and nothing said of verify": world.plan(ssl='latent="Y"', trust=False),
        "other name": world.plan(host=f"localhost:{world.postfix.port}"),
    }[what]
    server = make_server(plan).start()
    recipient = f"{re.sub('[ ,]+', '-', what)}@example.test"
    send(server, recipient)
    deferred = server.event("deferred", recipient=recipient)
    assert (deferred["code"], deferred["status"]) == (451, status)
    assert text in deferred["reply"]
    assert server.stop() == 0
    assert "another password" not in server.history(10_000)


def test_the_configuration_is_shown_without_its_password(world: World, make_server: MakeServer) -> None:
    for auth in ("", by("plain")):
        server = make_server(world.plan(auth))
        shown = server.command("check")
        assert USER in shown
        assert PASSWORD not in shown


def test_dsn_is_passed_on_and_the_relay_reports(
    world: World, make_server: MakeServer, receiver: Receiver
) -> None:
    server = make_server(world.plan()).start()
    wish = "NOTIFY=SUCCESS ORCPT=rfc822;first@other.test"
    mail.ask_for_reports(server.port, "dsn", "asks@origin.test", "RET=HDRS ENVID=mqcd+2B17", dsn=wish)
    report = receiver.to("asks@origin.test").content.decode()
    assert "Reporting-MTA: dns; postfix.test" in report
    assert "Original-Envelope-Id: mqcd+17" in report
    assert "Original-Recipient: rfc822;first@other.test" in report
    assert "Action: relayed" in report


def test_success_is_reported_where_the_next_hop_has_no_dsn(
    make_server: MakeServer, receiver: Receiver
) -> None:
    server = make_server(Plan(relays=(("", f"127.0.0.1:{receiver.port}"),))).start()
    wishes = {"relayed": "NOTIFY=SUCCESS", "silent": "NOTIFY=NEVER"}
    mail.ask_for_reports(server.port, "relayed", "wants@origin.test", "ENVID=ours", **wishes)
    report = receiver.to("wants@origin.test").content.decode()
    assert "Reporting-MTA: dns; mqcd.test" in report
    assert "Original-Envelope-Id: ours" in report
    assert "Action: relayed" in report
    assert "relayed@example.test" in report
    assert "silent@example.test" not in report
    assert "line 0 of relayed" not in report


def test_what_is_too_large_for_the_relay_bounces_unsent(
    world: World, make_server: MakeServer, receiver: Receiver
) -> None:
    server = make_server(world.plan()).start()
    content = b"Subject: large\r\n\r\n" + (b"x" * 70 + b"\r\n") * 2000
    mail.send(server.port, content, "large@example.test", sender="sends@origin.test")
    bounced = server.event("bounced", recipient="large@example.test")
    assert bounced["status"] == "5.3.4"
    report = receiver.to("sends@origin.test").content.decode()
    assert f"at most {SIZE_LIMIT}" in " ".join(report.split())
    assert "Status: 5.3.4" in report
    assert "Last-Attempt-Date: " in report
    # The relay has said nothing of this message.
    assert "Diagnostic-Code: x-mqcd; 552" in report
    assert "Remote-MTA" not in report


def test_a_login_that_is_mended_lets_the_mail_go(
    world: World, make_server: MakeServer, receiver: Receiver
) -> None:
    soon = {"retry_delays": "1s"}
    wrong = by("plain").replace(PASSWORD, "another password")
    server = make_server(world.plan(wrong).but(queue=soon)).start()
    send(server, "mended@example.test")
    server.event("deferred", recipient="mended@example.test")
    server.write(world.plan().but(queue=soon))
    server.signal(signal.SIGHUP)
    assert poll(lambda: receiver.count("mended@example.test"), "the mail") == 1
    shown = server.page("/v1/lanes")[1] + server.command("explain", "--json", "mended@example.test")
    assert f"as {USER}" in shown
    for secret in (PASSWORD, "another password"):
        assert secret not in shown + server.history(10_000)
