"""One server with each kind of listener, over IPv4 and IPv6: mail comes in by all of them."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE
from tests.e2e.test_logins import PASSWORD, USER, user
from tests.fakes.certificates import Authority

PROXY = b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 25\r\n"
RELAYS = "<relay_clients>127.0.0.1 | ::1 | 2001:db8::7</relay_clients>"


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


pytestmark = [pytest.mark.needs("openssl"), pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.sign("mqcd.test", "DNS:mqcd.test", "DNS:localhost")
    return made


@pytest.fixture(scope="module")
def server(
    make_module_server: MakeServer, module_receiver: Receiver, authority: Authority
) -> Iterator[Server]:
    certificate = authority.certificate.with_name("mqcd.test.pem")
    users = '<users file="%DIRVAR%/users"/><submission>Y</submission>'

    def listener(name: str, interface: str, inside: str, words: str = "") -> str:
        where = f'name="{name}" interface="{interface}" port="{free_port()}"'
        return f"<listener {where} {words}>{inside}</listener>"

    def tls(latent: str) -> str:
        return f'<ssl latent="{latent}" mandatory="Y" certfile="{certificate}"/><server>{users}</server>'

    listeners = (
        listener("six", "::1", f"<server>{RELAYS}</server>"),
        listener("both", "::", f"<server>{RELAYS}</server>"),
        listener("submission", "::1", tls("Y")),
        listener("submissions", "::1", tls("N")),
        listener("lmtp", "::1", f"<server>{RELAYS}</server>", 'protocol="lmtp"'),
        listener("odmr", "::1", f"<server>{users}</server>", 'protocol="odmr"'),
        listener("proxied", "::1", f"<proxies>::1</proxies><server>{RELAYS}</server>"),
    )
    server = make_module_server(Plan(relays=relay(module_receiver.port), more_listeners="".join(listeners)))
    server.var.mkdir(exist_ok=True)
    user(server, "add", USER, text=PASSWORD)
    server.start()
    yield server
    assert server.stop() == 0


def plain(host: str, port: int, _: ssl.SSLContext) -> smtplib.SMTP:
    return smtplib.SMTP(host, port, local_hostname=mail.HELO, timeout=DEADLINE)


def starttls(host: str, port: int, context: ssl.SSLContext) -> smtplib.SMTP:
    client = plain(host, port, context)
    client.starttls(context=context)
    client.login(USER, PASSWORD)
    return client


def tls_first(host: str, port: int, context: ssl.SSLContext) -> smtplib.SMTP:
    client = smtplib.SMTP_SSL(host, port, local_hostname=mail.HELO, timeout=DEADLINE, context=context)
    client.login(USER, PASSWORD)
    return client


def lmtp(host: str, port: int, _: ssl.SSLContext) -> smtplib.SMTP:
    return smtplib.LMTP(host, port, local_hostname=mail.HELO, timeout=DEADLINE)


class Proxied(smtplib.SMTP):
    """Says first for whom it speaks."""

    def connect(self, *given: object, **named: object) -> tuple[int, bytes]:
        host, port = given[0], given[1]
        assert isinstance(host, str)
        assert isinstance(port, int)
        self.sock = socket.create_connection((host, port), DEADLINE)
        self.sock.sendall(PROXY)
        return self.getreply()


def proxied(host: str, port: int, _: ssl.SSLContext) -> smtplib.SMTP:
    return Proxied(host, port, local_hostname=mail.HELO, timeout=DEADLINE)


WAYS: Mapping[str, tuple[str, str, Callable[[str, int, ssl.SSLContext], smtplib.SMTP], str, bytes]] = {
    "four": ("in", "127.0.0.1", plain, "127.0.0.1", b"ESMTP"),
    "six": ("six", "::1", plain, "::1", b"ESMTP"),
    "both-four": ("both", "127.0.0.1", plain, "127.0.0.1", b"ESMTP"),
    "both-six": ("both", "::1", plain, "::1", b"ESMTP"),
    "submission": ("submission", "::1", starttls, "::1", b"ESMTPSA"),
    "submissions": ("submissions", "::1", tls_first, "::1", b"ESMTPSA"),
    "lmtp": ("lmtp", "::1", lmtp, "::1", b"LMTP"),
    "proxied": ("proxied", "::1", proxied, "2001:db8::7", b"ESMTP"),
}


@pytest.mark.parametrize("way", WAYS)
def test_mail_comes_in(server: Server, module_receiver: Receiver, authority: Authority, way: str) -> None:
    listener, host, connect, address, protocol = WAYS[way]
    context = ssl.create_default_context(cafile=authority.certificate)
    context.check_hostname = False
    recipient = f"{way}@example.test"
    with connect(host, server.ports[listener], context) as client:
        client.sendmail(USER, [recipient], mail.message(way))
    event = server.event("accepted", recipient=recipient)
    assert (event["client"], event["listener"]) == (address, listener)
    header, _ = mail.split(module_receiver.to(recipient).content)
    assert (header["client"].decode().removeprefix("IPv6:"), header["protocol"]) == (address, protocol)


def test_odmr_listens(server: Server) -> None:
    with smtplib.SMTP("::1", server.ports["odmr"], timeout=DEADLINE) as client:
        client.ehlo()
        assert client.has_extn("ATRN")
        assert client.docmd("ATRN", "example.test")[0] == 530


def test_a_refusal_names_its_listener(server: Server) -> None:
    with plain("::1", server.ports["submission"], ssl.create_default_context()) as client:
        client.ehlo()
        assert client.docmd("MAIL", f"FROM:<{USER}>")[0] == 530
    refused = server.event("refused", listener="submission")
    assert (refused["client"], refused["code"]) == ("::1", 530)
