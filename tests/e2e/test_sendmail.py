"""Mail of real programs by `mqcd sendmail`, called sendmail: over the socket, and through the maildrop."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE, poll

ME = pwd.getpwuid(os.geteuid()).pw_name
_PYTHON = sys.executable
_CONTENT = ("Subject: s", "", "line")


class Programs:
    """A directory with links to mqcd, and programs that are run with them."""

    def __init__(self, directory: Path, server: Server) -> None:
        self.directory = directory
        script = directory / "run"
        script.write_text(
            f"#!{_PYTHON} -I\nimport os, sys\nos.environ['MQCD_VAR'] = {str(server.var)!r}\n"
            f"os.environ['MQCD_CONF'] = {str(server.conf)!r}\n"
            f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
            "from mqcd.__main__ import main\nmain()\n"
        )
        script.chmod(0o755)
        for name in ("sendmail", "mailq"):
            (directory / name).symlink_to(script)
        self.sendmail = str(directory / "sendmail")

    def run(self, *words: str, text: str = "", env: Mapping[str, str] | None = None) -> str:
        """Run to the end; gives standard output. Fails on any exit code but 0."""
        done = subprocess.run(
            words,
            input=text,
            capture_output=True,
            text=True,
            cwd=self.directory,
            env={**os.environ, "HOME": str(self.directory), **(env or {})},
            timeout=DEADLINE,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout


@pytest.fixture
def server(make_server: MakeServer, receiver: Receiver) -> Server:
    return make_server(Plan(relays=relay(receiver.port))).start()


@pytest.fixture
def programs(tmp_path: Path, server: Server) -> Programs:
    return Programs(tmp_path, server)


def arrived(receiver: Receiver, recipient: str = "b@example.com") -> tuple[list[str], Message]:
    """The recipients and the message of what arrives for this recipient."""
    received = receiver.to(recipient)
    return sorted(received.recipients), message_from_bytes(received.content)


def test_cron(programs: Programs, receiver: Receiver) -> None:
    report = f"From: {ME} (Cron Daemon)\nTo: {ME}\nSubject: Cron <{ME}@host> true\n\noutput\n.\nmore\n"
    programs.run(programs.sendmail, "-FCronDaemon", "-i", "-B8BITMIME", "-oem", ME, text=report)
    recipients, message = arrived(receiver, f"{ME}@mqcd.test")
    assert recipients == [f"{ME}@mqcd.test"]
    assert message["From"] == f"{ME} (Cron Daemon)"
    assert message.get_payload() == "output\r\n.\r\nmore\r\n"
    assert f"from user {ME}" in message["Received"]
    assert message["Message-ID"]
    assert message["Date"]


@pytest.mark.needs("s-nail")
def test_mailx(programs: Programs, receiver: Receiver) -> None:
    words = ("s-nail", "-n", "-S", f"mta={programs.sendmail}", "-s", "Grüße", "-b", "c@example.com")
    programs.run(*words, "b@example.com", text="line\n", env={"LC_ALL": "C.UTF-8"})
    recipients, message = arrived(receiver)
    assert recipients == ["b@example.com", "c@example.com"]
    assert message["Bcc"] is None


@pytest.mark.needs("mutt")
def test_mutt(programs: Programs, receiver: Receiver) -> None:
    setting = f'set sendmail="{programs.sendmail}"'
    words = ("mutt", "-n", "-F", "/dev/null", "-e", setting, "-s", "hello", "-b", "c@example.com")
    programs.run(*words, "--", "b@example.com", text="line\n")
    recipients, message = arrived(receiver)
    assert recipients == ["b@example.com", "c@example.com"]
    assert (message["Subject"], message["Bcc"]) == ("hello", None)


@pytest.mark.needs("git")
def test_git_send_email(programs: Programs, receiver: Receiver) -> None:
    core = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(core, "git-send-email").exists() or not Path("/usr/share/perl5/Mail/Address.pm").exists():
        pytest.skip("git send-email is not installed")
    git = ("git", "-c", "user.name=Me", "-c", f"user.email={ME}@mqcd.test")
    for words in (("init", "-q", "."), ("add", "run"), ("commit", "-q", "-m", "a change")):
        programs.run(*git, *words)
    sent = ("send-email", f"--smtp-server={programs.sendmail}", "--to=b@example.com", "--confirm=never")
    programs.run(*git, *sent, "--suppress-cc=all", "--quiet", f"--from=Me <{ME}@mqcd.test>", "--root", "HEAD")
    recipients, message = arrived(receiver)
    assert recipients[0] == "b@example.com"
    assert message["Subject"] == "[PATCH] a change"


def test_python(programs: Programs, receiver: Receiver) -> None:
    """As Python's own questions and answers on its library have it."""
    text = "To: b@example.com\\nBcc: c@example.com\\nSubject: hello\\n\\nline\\n.\\nmore\\n"
    code = f"import os; p = os.popen('{programs.sendmail} -t -i', 'w'); p.write('{text}'); exit(p.close())"
    programs.run(sys.executable, "-c", code)
    recipients, message = arrived(receiver)
    assert recipients == ["b@example.com", "c@example.com"]
    assert message.get_payload() == "line\r\n.\r\nmore\r\n"


@pytest.mark.needs("php")
def test_php(programs: Programs, receiver: Receiver) -> None:
    fields = '"Cc: c@example.com\\r\\nX-Is: php"'
    code = f"""exit(mail('b@example.com', 'hello', "line\\n.\\nmore", {fields}) ? 0 : 1);"""
    programs.run("php", "-n", "-d", f"sendmail_path={programs.sendmail} -t -i", "-r", code)
    recipients, message = arrived(receiver)
    assert recipients == ["b@example.com", "c@example.com"]
    assert message["X-Is"] == "php"
    assert message.get_payload() == "line\r\n.\r\nmore\r\n"


def test_smtp_on_standard_input(programs: Programs, receiver: Receiver) -> None:
    lines = ("EHLO me", f"MAIL FROM:<{ME}>", "RCPT TO:<b@example.com>", "DATA", *_CONTENT, ".", "QUIT")
    said = programs.run(programs.sendmail, "-bs", text="\r\n".join(lines[:3]) + "\r\n")
    assert said.splitlines()[-1].startswith("250")
    # A client in step: each line waits for its reply.
    pipe = subprocess.PIPE
    process = subprocess.Popen([programs.sendmail, "-bs"], stdin=pipe, stdout=pipe, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert process.stdout.readline().startswith("220 mqcd.test")
        for line in lines:
            process.stdin.write(line + "\r\n")
            process.stdin.flush()
            if line in _CONTENT:
                continue
            while (reply := process.stdout.readline())[3:4] == "-":
                pass
            assert reply[0] in "23", reply
    assert arrived(receiver)[1]["Subject"] == "s"


def test_mail_waits_in_the_maildrop_while_no_server_runs(
    programs: Programs, server: Server, receiver: Receiver
) -> None:
    maildrop = server.var / "maildrop"
    server.stop()
    programs.run(programs.sendmail, "-t", text="To: b@example.com\nSubject: early\n\nx\n")
    assert len(list(maildrop.iterdir())) == 1
    server.start()
    recipients, message = arrived(receiver)
    assert (recipients, message["Subject"]) == (["b@example.com"], "early")
    poll(lambda: not list(maildrop.iterdir()), "an empty maildrop")
    # A file that comes while the server runs.
    (server.var / "submit.sock").rename(server.var / "away")
    programs.run(programs.sendmail, "c@example.com", text="Subject: late\n\nx\n")
    (server.var / "away").rename(server.var / "submit.sock")
    arrived(receiver, "c@example.com")


def test_a_kill_in_the_middle_of_the_maildrop_loses_nothing(
    programs: Programs, server: Server, receiver: Receiver
) -> None:
    server.stop()
    count = 30
    for number in range(count):
        programs.run(programs.sendmail, f"r{number}@example.com", text="Subject: x\n\nx\n")
    server.start()
    poll(lambda: len(list((server.var / "maildrop").iterdir())) < count, "a file that is taken")
    server.kill()
    server.start()
    for number in range(count):
        arrived(receiver, f"r{number}@example.com")
    poll(lambda: not list((server.var / "maildrop").iterdir()), "an empty maildrop")


def test_mailq_lists_the_queue(programs: Programs, server: Server) -> None:
    assert programs.run(str(programs.directory / "mailq")) == ""


def test_little_time_passes_until_a_message_is_read(programs: Programs) -> None:
    def seconds() -> float:
        process = subprocess.Popen([programs.sendmail, "-bi"])
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime

    # Of the processor, and the best of several: other tests use it too.
    assert min(seconds() for _ in range(10)) < 0.15


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_sends_as_itself_alone(programs: Programs, server: Server, receiver: Receiver) -> None:
    nobody = pwd.getpwnam("nobody")

    def send(*words: str) -> int:
        # Loaded first: that user need not be able to read this Python.
        script = (
            "import email.utils, os, pwd, socket, sys\n"
            "import mqcd.sendmail.exchange, mqcd.sendmail.letter, mqcd.sendmail.maildrop\n"
            "from mqcd.sendmail.main import run\n"
            f"os.setgroups([])\nos.setgid({nobody.pw_gid})\nos.setuid({nobody.pw_uid})\n"
            f"sys.exit(run({list(words)!r}, len))"
        )
        env = {"MQCD_VAR": str(server.var)}
        # Each time: another run of pytest that begins closes the directory that they share.
        for directory in (server.var, *server.var.parents):
            if directory != Path("/"):
                directory.chmod(directory.stat().st_mode | 0o001)
        return subprocess.run([_PYTHON, "-c", script], input="\nx\n", text=True, env=env).returncode

    assert send("-f", "boss@example.com", "b@example.com") == 77
    assert send("b@example.com") == 0
    assert arrived(receiver)[1]["From"] == "nobody <nobody@mqcd.test>"
    server.stop()
    assert send("c@example.com") == 0
    (waiting,) = (server.var / "maildrop").iterdir()
    assert (waiting.stat().st_uid, waiting.stat().st_gid) == (nobody.pw_uid, os.getegid())
    server.start()
    arrived(receiver, "c@example.com")
