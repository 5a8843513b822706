"""What real clients send arrives at the next hop byte for byte, behind one Received header of ours."""

from __future__ import annotations

import smtplib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.mail import Client
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE

SAMPLES = mail.sample_files()
LARGE = 30 * 1024 * 1024
MEMORY_FOR_LARGE = 16 * 1024 * 1024
"""How much more memory, octets, the server may need for a message of LARGE octets: chunks and buffers of
both sockets, never the message."""


@pytest.fixture(scope="module")
def server(make_module_server: MakeServer, module_receiver: Receiver) -> Iterator[Server]:
    server = make_module_server(Plan(relays=relay(module_receiver.port))).start()
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def receiver(module_receiver: Receiver) -> Receiver:
    return module_receiver


def test_there_are_samples() -> None:
    if not SAMPLES:
        pytest.skip(
            "no test/test_email/data in this Python, /usr/lib/python3* or .test/debs: libpython3.X-testsuite"
        )
    assert len(SAMPLES) >= 40


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_messages_of_cpythons_email_tests(server: Server, receiver: Receiver, sample: Path) -> None:
    content = mail.with_crlf(sample.read_bytes())
    recipient = f"{sample.stem}@example.test"
    if mail.has_bare(content) or b"\0" in content:
        with pytest.raises(smtplib.SMTPDataError, match=r"5\.6\.0"):
            mail.send(server.port, content, recipient)
        return
    mail.send(server.port, content, recipient)
    header, rest = mail.split(receiver.to(recipient).content)
    assert rest == content
    assert header["recipient"].decode() == recipient
    assert header["protocol"] == b"ESMTP"
    assert header["helo"].decode() == mail.HELO


CONTENTS = {
    "eight-bit": b"Subject: latin\r\n\r\n" + bytes(range(128, 256)) * 3 + b"\r\n",
    "all-octets": b"Subject: octets\r\n\r\n" + bytes(n for n in range(1, 256) if n not in b"\r\n") + b"\r\n",
    "dot-lines": b"Subject: dots\r\n\r\n.\r\n..\r\n...\r\n.a\r\n..b\r\n \r\n.\r\n",
    "dot-first": b".Subject: dot\r\n\r\nx\r\n",
    "only-a-dot": b".\r\n",
    "no-headers": b"just a line\r\n",
    "only-headers": b"Subject: no body\r\n",
    "empty-body": b"Subject: no body\r\n\r\n",
    "blank-lines": b"\r\n\r\n\r\n",
    "long-line": b"Subject: long\r\n\r\n" + b"x" * 998 + b"\r\n",
    "like-an-end": b"Subject: end\r\n\r\nQUIT\r\nRSET\r\nMAIL FROM:<a@b.test>\r\n",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_content_of_every_shape(server: Server, receiver: Receiver, name: str) -> None:
    recipient = f"{name}@example.test"
    mail.send(server.port, CONTENTS[name], recipient, options=["BODY=8BITMIME"])
    arrived = receiver.to(recipient)
    assert mail.sent_part(arrived.content) == CONTENTS[name]
    assert arrived.body == "8BITMIME"


def test_dot_stuffing_cut_at_every_place(server: Server, receiver: Receiver) -> None:
    wire = b"Subject: cut\r\n\r\n..\r\n...a\r\n.b\r\n..\r\n\r\n.\r\n"
    with Client(server.port) as client:
        client.greet()
        for cut in range(1, len(wire)):
            client.envelope("sender@origin.test", f"cut-{cut}@example.test")
            client.send(wire[:cut])
            client.send(wire[cut:])
            assert client.reply().startswith("250 ")
    for cut in range(1, len(wire)):
        arrived = receiver.to(f"cut-{cut}@example.test").content
        assert mail.sent_part(arrived) == b"Subject: cut\r\n\r\n.\r\n..a\r\nb\r\n.\r\n\r\n"


def test_a_pipe_in_an_address(server: Server, receiver: Receiver) -> None:
    mail.send(server.port, mail.message("pipe"), "a|b@example.test", sender="c|d@origin.test")
    assert receiver.to("a|b@example.test").sender == "c|d@origin.test"


def test_a_large_message_never_lies_in_memory(server: Server, receiver: Receiver) -> None:
    line = b"x" * 70 + b"\r\n"
    content = b"Subject: large\r\n\r\n" + line * (LARGE // len(line))
    mail.send(server.port, mail.message("warm"), "warm@example.test")
    receiver.to("warm@example.test")
    before = server.peak_memory()
    mail.send(server.port, content, "large@example.test")
    arrived = receiver.to("large@example.test")
    assert mail.sent_part(arrived.content) == content
    server.event("delivered", recipient="large@example.test")
    assert server.peak_memory() - before < MEMORY_FOR_LARGE


SMUGGLED = b"MAIL FROM:<evil@origin.test>\r\nRCPT TO:<smuggled@example.test>\r\nDATA\r\nevil\r\n"


@pytest.mark.parametrize("inside", [b"bare\rCR\r\n", b"\r.\r", b"\r\n.\r", b"\n.\r\r\n", b"\0"])
def test_smuggled_ends_are_refused_in_step(server: Server, receiver: Receiver, inside: bytes) -> None:
    with Client(server.port) as client:
        client.greet()
        client.envelope("sender@origin.test", "carrier@example.test")
        # Whatever a look-alike of the end is taken for, only one message ends here: the last one.
        client.send(b"Subject: s\r\n\r\ntext" + inside + SMUGGLED + b".\r\n")
        assert client.reply().startswith("554 5.6.0")
        assert client.ask("NOOP").startswith("250 ")
    assert receiver.count("smuggled@example.test") == receiver.count("carrier@example.test") == 0
    assert server.queue_ls("--domain", "example.test") == []


LOOK_ALIKES = [b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\n\n.\r\n"]


@pytest.mark.parametrize("number", range(len(LOOK_ALIKES)))
def test_an_end_with_a_bare_lf_is_content_for_every_hop(
    server: Server, receiver: Receiver, number: int
) -> None:
    inside, recipient = LOOK_ALIKES[number], f"carrier-{number}@example.test"
    with Client(server.port) as client:
        client.greet()
        client.envelope("sender@origin.test", recipient)
        client.send(b"Subject: s\r\n\r\ntext" + inside + SMUGGLED + b".\r\n")
        assert client.reply().startswith("250 ")
        assert client.ask("NOOP").startswith("250 ")
    empty = inside.count(b"\n") * b"\r\n"
    assert mail.sent_part(receiver.to(recipient).content) == b"Subject: s\r\n\r\ntext" + empty + SMUGGLED
    assert receiver.count("smuggled@example.test") == 0


@pytest.mark.needs("curl")
def test_curl_sends_a_unix_file(server: Server, receiver: Receiver, tmp_path: Path) -> None:
    file = tmp_path / "message"
    file.write_bytes(b"From: <sender@origin.test>\nSubject: curl\n\none\n\ntwo\n")
    done = subprocess.run(
        ["curl", "--silent", "--show-error", f"smtp://127.0.0.1:{server.port}/{mail.HELO}",
         "--mail-from", "sender@origin.test", "--mail-rcpt", "curl@example.test", "--upload-file", str(file)],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    arrived = mail.sent_part(receiver.to("curl@example.test").content)
    assert mail.has_bare(arrived) is False
    assert arrived.startswith(b"From: <sender@origin.test>\r\nSubject: curl\r\n\r\none\r\n\r\ntwo\r\n")


@pytest.mark.needs("swaks")
def test_swaks(server: Server, receiver: Receiver, tmp_path: Path) -> None:
    content = mail.message("swaks")
    data = tmp_path / "message"
    data.write_bytes(content + b".\r\n")
    done = subprocess.run(
        ["swaks", "--server", "127.0.0.1", "--port", str(server.port), "--helo", mail.HELO,
         "--from", "sender@origin.test", "--to", "swaks@example.test,swaks-too@example.test",
         "--data", f"@{data}", "--no-data-fixup"],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    header, rest = mail.split(receiver.to("swaks@example.test").content)
    assert rest == content
    assert header["recipient"] is None, "a message with several recipients must not tell one of the others"
    assert mail.sent_part(receiver.to("swaks-too@example.test").content) == content


@pytest.mark.needs("swaks")
def test_swaks_with_a_message_of_its_own(server: Server, receiver: Receiver) -> None:
    done = subprocess.run(
        ["swaks", "--server", "127.0.0.1", "--port", str(server.port), "--helo", mail.HELO, "--pipeline",
         "--from", "sender@origin.test", "--to", "swaks-own@example.test", "--body", "..\n.\nhello"],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    # Its transcript has each line that it sent behind " -> ", the dots doubled.
    lines = [line[4:] for line in done.stdout.splitlines() if line.startswith(" -> ")]
    begin = next(number for number, line in enumerate(lines) if line.startswith("Date: "))
    sent = [line[1:] if line.startswith(".") else line for line in lines[begin : lines.index(".", begin)]]
    rest = mail.sent_part(receiver.to("swaks-own@example.test").content)
    assert rest.decode() == "".join(f"{line}\r\n" for line in sent)


@pytest.mark.needs("smtp-source")
@pytest.mark.parametrize("kept", [[], ["-d"]], ids=["a-connection-each", "kept-connections"])
def test_smtp_source(server: Server, receiver: Receiver, tmp_path: Path, kept: list[str]) -> None:
    data = tmp_path / "message"
    data.write_bytes(b"Subject: source\n\n" + b"some text\n" * 400 + b".\n..\n")
    count, recipient = 60, f"source{len(kept)}@example.test"
    smtp_source(server.port, count, recipient, *kept, "-F", str(data))
    arrived = receiver.mail.several(lambda each: recipient in each.recipients, count, "mail of smtp-source")
    # What it makes of the file we learn from a copy that comes without a server between.
    smtp_source(receiver.port, 1, "direct@example.test", *kept, "-F", str(data))
    direct = receiver.to("direct@example.test").content
    assert direct.count(b"\r\n.\r\n..\r\n") == 1
    assert {mail.sent_part(each.content) for each in arrived} == {direct}
    assert len({mail.spid_of(each.content) for each in arrived}) == count


def smtp_source(port: int, count: int, recipient: str, *options: str) -> None:
    done = subprocess.run(
        ["smtp-source", *options, "-s", "5", "-m", str(count), "-M", mail.HELO,
         "-f", "sender@origin.test", "-t", recipient, f"127.0.0.1:{port}"],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
