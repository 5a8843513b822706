"""Real clients log in at a real server, by each mechanism that each of them has."""

from __future__ import annotations

import os
import smtplib
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mqcd.submit.auth.failures import MOST_OF_CLIENT
from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.programs import by_aiosmtplib, by_nodemailer
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE, poll

USER = "alice@origin.test"
PASSWORD = "tr0ub4dor&3"
OTHER = "correct horse battery"


def user(server: Server, *words: str, text: str) -> None:
    """`mqcd user`, the password on standard input."""
    command = [sys.executable, "-m", "mqcd", "-c", str(server.conf), "--var", str(server.var), "user", *words]
    done = subprocess.run(command, input=f"{text}\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert text not in done.stdout + done.stderr


@pytest.fixture(scope="module")
def receiver(module_receiver: Receiver) -> Receiver:
    return module_receiver


@pytest.fixture(scope="module")
def server(make_module_server: MakeServer, module_receiver: Receiver) -> Iterator[Server]:
    """Its one client may not relay: only users send anything."""
    plan = Plan(
        relays=relay(module_receiver.port),
        queue={"shards": 2},
        door={
            "relay_clients": "-",
            "authtypes": "plain | login | cram_md5 | scram_sha_256",
            "authtypes_ssl": "-",
            "submission": "Y",
        },
        door_elements='<users file="%DIRVAR%/users"/>',
    )
    server = make_module_server(plan)
    server.var.mkdir(exist_ok=True)
    user(server, "add", USER, "--plain", text=PASSWORD)
    server.start()
    yield server
    assert server.stop() == 0
    assert not [line for line in server.faults() if PASSWORD in str(line)]


def arrived(server: Server, receiver: Receiver, recipient: str) -> None:
    header, _ = mail.split(receiver.to(recipient).content)
    assert header["protocol"] == b"ESMTPA"
    assert server.event("accepted", recipient=recipient)["user"] == USER


def run(*words: str, text: bytes = b"") -> None:
    done = subprocess.run(words, input=text, capture_output=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "CRAM-MD5"])
@pytest.mark.needs("swaks")
def test_swaks_logs_in(server: Server, receiver: Receiver, mechanism: str) -> None:
    recipient = f"swaks-{mechanism}@example.test"
    run("swaks", "--server", "127.0.0.1", "--port", str(server.port), "--helo", mail.HELO,
        "--auth", mechanism, "--auth-user", USER, "--auth-password", PASSWORD,
        "--from", USER, "--to", recipient)  # fmt: skip
    arrived(server, receiver, recipient)


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "CRAM-MD5"])
@pytest.mark.parametrize("initial", [True, False])
def test_smtplib_logs_in(server: Server, receiver: Receiver, mechanism: str, initial: bool) -> None:
    recipient = f"smtplib-{mechanism}-{initial}@example.test"
    with smtplib.SMTP("127.0.0.1", server.port, local_hostname=mail.HELO, timeout=DEADLINE) as client:
        client.ehlo()
        client.user, client.password = USER, PASSWORD
        method = getattr(client, f"auth_{mechanism.lower().replace('-', '_')}")
        assert client.auth(mechanism, method, initial_response_ok=initial)[0] == 235
        client.sendmail(USER, [recipient], b"hello\r\n")
    arrived(server, receiver, recipient)


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "CRAM-MD5"])
@pytest.mark.needs("curl")
def test_curl_logs_in(server: Server, receiver: Receiver, mechanism: str, tmp_path: Path) -> None:
    recipient = f"curl-{mechanism}@example.test"
    settings = tmp_path / "curlrc"
    settings.write_text(f'user = "{USER}:{PASSWORD}"\n')
    run("curl", "-sS", "-K", str(settings), f"smtp://127.0.0.1:{server.port}/{mail.HELO}",
        "--login-options", f"AUTH={mechanism}", "--mail-from", USER, "--mail-rcpt", recipient,
        "--upload-file", "-", text=b"Subject: curl\r\n\r\nhello\r\n")  # fmt: skip
    arrived(server, receiver, recipient)


@pytest.mark.parametrize("mechanism", ["plain", "login", "cram-md5", "scram-sha-256"])
@pytest.mark.needs("msmtp")
def test_msmtp_logs_in(server: Server, receiver: Receiver, mechanism: str, tmp_path: Path) -> None:
    recipient = f"msmtp-{mechanism}@example.test"
    settings = tmp_path / "msmtprc"
    lines = ("host 127.0.0.1", f"port {server.port}", f"domain {mail.HELO}", "tls off", f"auth {mechanism}",
             f"user {USER}", f'password "{PASSWORD}"', f"from {USER}")  # fmt: skip
    settings.write_text("defaults\naccount default\n" + "\n".join(lines) + "\n")
    settings.chmod(0o600)
    run("msmtp", "-C", str(settings), recipient, text=b"Subject: msmtp\n\nhello\n")
    arrived(server, receiver, recipient)


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "CRAM-MD5"])
@pytest.mark.needs("node")
def test_nodemailer_logs_in(server: Server, receiver: Receiver, mechanism: str) -> None:
    recipient = f"nodemailer-{mechanism}@example.test"
    login = {"user": USER, "pass": PASSWORD}
    options = {"port": server.port, "authMethod": mechanism, "auth": login, "ignoreTLS": True}
    by_nodemailer(options, {"from": USER, "to": recipient, "subject": "gr\u00fc\u00dfe", "text": "hello"})
    arrived(server, receiver, recipient)


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "CRAM-MD5"])
def test_aiosmtplib_logs_in(server: Server, receiver: Receiver, mechanism: str) -> None:
    recipient = f"aiosmtplib-{mechanism}@example.test"
    by_aiosmtplib(server.port, USER, recipient, (USER, PASSWORD), mechanism)
    arrived(server, receiver, recipient)


def refused(server: Server, name: str, password: str) -> int:
    """The code of the reply to a login."""
    with smtplib.SMTP("127.0.0.1", server.port, local_hostname=mail.HELO, timeout=DEADLINE) as client:
        client.user, client.password = name, password
        client.ehlo()
        try:
            return client.auth("PLAIN", client.auth_plain)[0]
        except smtplib.SMTPAuthenticationError as error:
            return error.smtp_code


def test_a_user_that_is_added_may_log_in(server: Server) -> None:
    user(server, "add", "bob", text=OTHER)
    read = f"2 users read from {server.var / 'users'}"
    said = [read] * server.plan.processes
    poll(lambda: [read for line in server.lines.all() if line.get("msg") == read] == said or None, read)
    assert refused(server, "bob", OTHER) == 235


def test_only_the_own_address_may_be_sent_with(server: Server) -> None:
    with smtplib.SMTP("127.0.0.1", server.port, timeout=DEADLINE) as client:
        client.login(USER, PASSWORD)
        assert client.mail("bob@origin.test")[0] == 553


def test_a_guesser_has_no_more_tries_with_more_shards(server: Server) -> None:
    guess = b64encode(b"\0nobody\0guess").decode()
    codes = []
    for _ in range(MOST_OF_CLIENT + 1):
        with smtplib.SMTP(
            "127.0.0.1", server.port, timeout=DEADLINE, source_address=("127.0.0.2", 0)
        ) as client:
            client.ehlo()
            codes.append(client.docmd("AUTH", f"PLAIN {guess}")[0])
    assert codes == [535] * MOST_OF_CLIENT + [421]


def test_neither_log_nor_files_have_a_password(server: Server) -> None:
    assert refused(server, USER, "a-wrong-guess") == 535
    secrets = (PASSWORD, OTHER, "a-wrong-guess")
    assert not [line for line in server.lines.all() if any(secret in str(line) for secret in secrets)]
    for path in _files(server.var):
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content]


def _files(directory: Path) -> Sequence[Path]:
    paths = [Path(top) / name for top, _, names in os.walk(directory) for name in names]
    return [path for path in paths if path.is_file()]
