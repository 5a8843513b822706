"""Real clients send over TLS: by STARTTLS and from the first octet, logged in; sessions resume and go on."""

from __future__ import annotations

import signal
import smtplib
import ssl
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.programs import by_aiosmtplib, by_nodemailer, by_phpmailer
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE
from tests.e2e.test_logins import PASSWORD, USER, user
from tests.fakes.certificates import Authority

pytestmark = pytest.mark.needs("openssl")
HOST = "mqcd.test"
SHARDS = 2


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.sign(HOST, f"DNS:{HOST}", "DNS:localhost", "IP:127.0.0.1")
    made.sign("client", f"email:{USER}")
    return made


def signed(authority: Authority, name: str = HOST) -> Path:
    return authority.certificate.with_name(f"{name}.pem")


def tls(authority: Authority, latent: str, more: str = "") -> str:
    return f'<ssl latent="{latent}" mandatory="Y" certfile="{signed(authority)}" {more}/>'


def plan(authority: Authority, port: int, shards: int = 1) -> Plan:
    """Listener "in" has STARTTLS and asks for certificates, "first" begins with TLS."""
    types = "plain | login | cram_md5 | scram_sha_256 | scram_sha_256_plus"
    door = {"relay_clients": "-", "authtypes": f"{types} | external"}
    first = f'<users file="%DIRVAR%/users"/><authtypes>{types}</authtypes>'
    return Plan(
        relays=relay(port),
        queue={"shards": shards},
        smtp_port=free_port(),
        door=door,
        door_elements='<users file="%DIRVAR%/users"/>',
        listener_elements=tls(authority, "Y", f'trust="{authority.certificate}"'),
        more_listeners=f"""<listener name="first" interface="127.0.0.1" port="{free_port()}">
          {tls(authority, "N")}<server>{first}</server></listener>""",
    )


def started(server: Server) -> Server:
    server.var.mkdir(exist_ok=True)
    user(server, "add", USER, "--plain", text=PASSWORD)
    return server.start()


@pytest.fixture(scope="module")
def server(
    make_module_server: MakeServer, module_receiver: Receiver, authority: Authority
) -> Iterator[Server]:
    server = started(make_module_server(plan(authority, module_receiver.port)))
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def receiver(module_receiver: Receiver) -> Receiver:
    return module_receiver


def arrived(server: Server, receiver: Receiver, recipient: str) -> None:
    header, _ = mail.split(receiver.to(recipient).content)
    assert header["protocol"] == b"ESMTPSA"
    assert server.event("accepted", recipient=recipient)["tls"].startswith("TLSv1.")


def run(*words: str, text: bytes = b"") -> str:
    done = subprocess.run(words, input=text, capture_output=True, timeout=DEADLINE, check=False)
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0, said
    return said


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "CRAM-MD5"])
@pytest.mark.parametrize(("listener", "word"), [("in", "--tls"), ("first", "--tls-on-connect")])
@pytest.mark.needs("swaks")
def test_swaks(server: Server, receiver: Receiver, mechanism: str, listener: str, word: str) -> None:
    recipient = f"swaks-{mechanism}-{listener}@example.test"
    run("swaks", "--server", "127.0.0.1", "--port", str(server.ports[listener]), "--helo", mail.HELO, word,
        "--auth", mechanism, "--auth-user", USER, "--auth-password", PASSWORD,
        "--from", USER, "--to", recipient)  # fmt: skip
    arrived(server, receiver, recipient)


@pytest.mark.parametrize(("listener", "scheme"), [("in", "smtp"), ("first", "smtps")])
@pytest.mark.needs("curl")
def test_curl(
    server: Server, receiver: Receiver, authority: Authority, tmp_path: Path, listener: str, scheme: str
) -> None:
    recipient = f"curl-{listener}@example.test"
    settings = tmp_path / "curlrc"
    settings.write_text(f'user = "{USER}:{PASSWORD}"\n')
    run("curl", "-sS", "-K", str(settings), "--ssl-reqd", "--cacert", str(authority.certificate),
        f"{scheme}://localhost:{server.ports[listener]}/{mail.HELO}", "-4", "--mail-from", USER,
        "--mail-rcpt", recipient, "--upload-file", "-", text=b"Subject: curl\r\n\r\nhello\r\n")  # fmt: skip
    arrived(server, receiver, recipient)


@pytest.mark.parametrize(
    ("mechanism", "listener"),
    [("plain", "in"), ("scram-sha-256", "in"), ("external", "in"), ("plain", "first")],
)
@pytest.mark.needs("msmtp")
def test_msmtp(
    server: Server,
    receiver: Receiver,
    authority: Authority,
    tmp_path: Path,
    mechanism: str,
    listener: str,
) -> None:
    recipient = f"msmtp-{mechanism}-{listener}@example.test"
    settings = tmp_path / "msmtprc"
    lines = ["host 127.0.0.1", f"port {server.ports[listener]}", f"domain {mail.HELO}", "tls on",
             f"tls_starttls {'on' if listener == 'in' else 'off'}",
             f"tls_trust_file {authority.certificate}", f"auth {mechanism}",
             f"user {USER}", f'password "{PASSWORD}"', f"from {USER}"]  # fmt: skip
    if mechanism == "external":
        ours = signed(authority, "client")
        lines += [f"tls_cert_file {ours}", f"tls_key_file {ours}"]
    settings.write_text("defaults\naccount default\n" + "\n".join(lines) + "\n")
    settings.chmod(0o600)
    run("msmtp", "-C", str(settings), recipient, text=b"Subject: msmtp\n\nhello\n")
    arrived(server, receiver, recipient)


@pytest.mark.parametrize(
    ("priority", "binding"), [("NORMAL", b"tls-exporter"), ("NORMAL:-VERS-TLS1.3", b"tls-unique")]
)
@pytest.mark.needs("gsasl")
def test_gsasl_binds_its_login_to_the_connection(
    server: Server, authority: Authority, priority: str, binding: bytes
) -> None:
    said = run("gsasl", "--smtp", "--connect", f"localhost:{server.port}", "-a", USER, "-p", PASSWORD,
               "--x509-ca-file", str(authority.certificate), "--priority", priority)  # fmt: skip
    lines = said.replace("\r", "").split("\n")
    asked = lines.index("AUTH SCRAM-SHA-256-PLUS")
    assert b64decode(lines[asked + 2]).startswith(b"p=" + binding + b",,")
    assert "235 2.7.0 Authentication succeeded" in lines


@pytest.mark.parametrize("listener", ["in", "first"])
@pytest.mark.needs("node")
def test_nodemailer(server: Server, receiver: Receiver, authority: Authority, listener: str) -> None:
    recipient = f"nodemailer-{listener}@example.test"
    options = {
        "port": server.ports[listener],
        "secure": listener == "first",
        "requireTLS": True,
        "tls": {"ca": authority.certificate.read_text(), "servername": HOST},
        "auth": {"user": USER, "pass": PASSWORD},
    }
    attached = {"filename": "data.bin", "content": "x" * 100_000}
    message = {"from": USER, "to": recipient, "html": "<p>hello</p>", "attachments": [attached]}
    by_nodemailer(options, message)
    arrived(server, receiver, recipient)


@pytest.mark.parametrize(
    ("mechanism", "listener"), [("PLAIN", "in"), ("LOGIN", "in"), ("CRAM-MD5", "in"), ("PLAIN", "first")]
)
@pytest.mark.needs("php")
def test_phpmailer(
    server: Server, receiver: Receiver, authority: Authority, mechanism: str, listener: str
) -> None:
    recipient = f"php-{mechanism}-{listener}@example.test"
    settings = {
        "Port": server.ports[listener],
        "SMTPSecure": "tls" if listener == "in" else "ssl",
        "SMTPOptions": {"ssl": {"cafile": str(authority.certificate), "peer_name": HOST}},
        "AuthType": mechanism,
        "Username": USER,
        "Password": PASSWORD,
        "CharSet": "utf-8",
    }
    by_phpmailer(
        settings, {"from": USER, "to": recipient, "subject": "gr\u00fc\u00dfe", "text": "hello\n.\n"}
    )
    arrived(server, receiver, recipient)


@pytest.mark.parametrize("listener", ["in", "first"])
def test_aiosmtplib(server: Server, receiver: Receiver, authority: Authority, listener: str) -> None:
    recipient = f"aiosmtplib-{listener}@example.test"
    by_aiosmtplib(
        server.ports[listener],
        USER,
        recipient,
        (USER, PASSWORD),
        "PLAIN",
        context=context(authority),
        tls_first=listener == "first",
    )
    arrived(server, receiver, recipient)


def context(authority: Authority, ours: str = "") -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority.certificate)
    if ours:
        made.load_cert_chain(signed(authority, ours))
    return made


def test_smtplib_with_a_certificate(server: Server, receiver: Receiver, authority: Authority) -> None:
    recipient = "external@example.test"
    with smtplib.SMTP("localhost", server.port, local_hostname=mail.HELO, timeout=DEADLINE) as client:
        client.starttls(context=context(authority, "client"))
        client.ehlo()
        assert client.docmd("AUTH EXTERNAL", "=")[0] == 235
        client.sendmail(USER, [recipient], b"hello\r\n")
    arrived(server, receiver, recipient)


def s_client(server: Server, listener: str, *words: str) -> str:
    """What OpenSSL says of a connection that says EHLO and QUIT."""
    starttls: Sequence[str] = ("-starttls", "smtp") if listener == "in" else ()
    return run("openssl", "s_client", "-connect", f"127.0.0.1:{server.ports[listener]}", *starttls, *words,
               "-crlf", "-ign_eof", text=b"EHLO client.test\nQUIT\n")  # fmt: skip


def reload(server: Server, said: str = "SIGHUP: no setting has changed") -> None:
    before = [line.get("msg") for line in server.lines.all()].count(said)
    server.signal(signal.SIGHUP)
    server.lines.first(
        lambda line: (
            [each.get("msg") for each in server.lines.all()].count(said) == before + server.plan.processes
        ),
        said,
    )


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_sessions_resume_in_every_shard_and_after_sighup(
    make_server: MakeServer, receiver: Receiver, authority: Authority, tmp_path: Path, version: str
) -> None:
    server = started(make_server(plan(authority, receiver.port, SHARDS)))
    kept = tmp_path / "session"
    assert "New, TLSv" in s_client(server, "first", version, "-sess_out", str(kept))
    # Connections go to either shard.
    for _ in range(8):
        assert "Reused, TLSv" in s_client(server, "first", version, "-sess_in", str(kept))
    signed(authority).touch()
    reload(server)
    for _ in range(8):
        assert "Reused, TLSv" in s_client(server, "first", version, "-sess_in", str(kept))
    assert "New, TLSv" in s_client(server, "in", version, "-sess_out", str(kept))
    assert "Reused, TLSv" in s_client(server, "in", version, "-sess_in", str(kept))
    assert server.stop() == 0


def test_a_new_certificate_is_taken_and_a_broken_one_is_not(
    make_server: MakeServer, receiver: Receiver, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate = authority.sign(HOST, f"DNS:{HOST}", "DNS:localhost")
    authority.sign("client", f"email:{USER}")
    server = started(make_server(plan(authority, receiver.port)))
    server.faults_expected = lambda line: "ssl@certfile" in line["msg"] or "SIGHUP" in line["msg"]
    with smtplib.SMTP("localhost", server.port, local_hostname=mail.HELO, timeout=DEADLINE) as kept:
        kept.starttls(context=context(authority))
        first = served(server, authority)
        good = certificate.read_bytes()
        certificate.write_text("no certificate")
        reload(server, "SIGHUP: the new configuration has errors; the old one stays")
        assert served(server, authority) == first
        certificate.write_bytes(good)
        authority.sign(HOST, f"DNS:{HOST}", "DNS:localhost")
        reload(server)
        assert served(server, authority) != first
        # It is the same session still.
        kept.ehlo()
        kept.login(USER, PASSWORD)
        kept.sendmail(USER, ["kept@example.test"], b"hello\r\n")
    arrived(server, receiver, "kept@example.test")
    assert server.stop() == 0


def served(server: Server, authority: Authority) -> bytes:
    """The certificate that a new connection gets."""
    with smtplib.SMTP_SSL("localhost", server.ports["first"], context=context(authority)) as client:
        sock = client.sock
        assert isinstance(sock, ssl.SSLSocket)
        return sock.getpeercert(True) or b""
