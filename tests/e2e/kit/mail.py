"""Messages: sending them over plain sockets, and telling our Received header from what was sent."""

from __future__ import annotations

import re
import smtplib
import socket
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.kit.waiting import DEADLINE

HELO = "client.test"

_OURS = re.compile(
    rb"Received: from (?P<helo>\S+) \(\[(?P<client>[^\]]+)\]\)\r\n"
    rb"\tby mqcd\.test \(mqcd\) with (?P<protocol>[A-Z0-9]+) id (?P<spid>[0-9A-F]{16})"
    rb"(?:\r\n\tfor <(?P<recipient>[^>]*)>; |;\r\n\t)[^\r\n]+ \+0000\r\n"
)


def split(arrived: bytes) -> tuple[re.Match[bytes], bytes]:
    """Our Received header, which must be the very first thing and the only one of ours, and the rest."""
    header = _OURS.match(arrived)
    assert header is not None, f"no Received header of ours in front of {arrived[:300]!r}"
    rest = arrived[header.end() :]
    assert _OURS.search(rest) is None, "a second Received header of ours"
    return header, rest


def beyond_others(arrived: bytes) -> bytes:
    """What arrived, from our Received header on: hops behind us put theirs in front of it."""
    header = _OURS.search(arrived)
    assert header is not None, f"no Received header of ours in {arrived[:600]!r}"
    return arrived[header.start() :]


def sent_part(arrived: bytes) -> bytes:
    """What the client sent of it."""
    return split(arrived)[1]


def spid_of(arrived: bytes) -> str:
    """The SPID that our Received header names."""
    return split(arrived)[0]["spid"].decode()


def message(token: str, *, lines: int = 4) -> bytes:
    """A small message that names itself in its subject."""
    body = "".join(f"line {number} of {token} {'.' * 40}\r\n" for number in range(lines))
    return f"From: <sender@origin.test>\r\nSubject: {token}\r\n\r\n{body}".encode()


def send(
    port: int,
    content: bytes,
    recipients: str | Sequence[str],
    *,
    sender: str = "sender@origin.test",
    options: Sequence[str] = (),
    source: str = "127.0.0.1",
) -> None:
    """Send one message over one connection by Python's smtplib; any refusal is an exception."""
    with smtplib.SMTP(
        "127.0.0.1", port, local_hostname=HELO, timeout=DEADLINE, source_address=(source, 0)
    ) as client:
        refused = client.sendmail(sender, recipients, content, mail_options=options)
        assert refused == {}


class Client:
    """A client that sends exactly the octets that it is told to."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, octets: bytes) -> None:
        self._socket.sendall(octets)

    def reply(self) -> str:
        """The next reply, its lines joined; "" when the server has closed."""
        lines = []
        while line := self._file.readline().decode():
            lines.append(line.rstrip("\r\n"))
            if line[3:4] != "-":
                break
        return "\n".join(lines)

    def ask(self, line: str) -> str:
        """Send a command and wait for its reply."""
        self.send(line.encode() + b"\r\n")
        return self.reply()

    def greet(self) -> str:
        """Greeting and EHLO; gives the reply to EHLO."""
        assert self.reply().startswith("220 ")
        return self.ask(f"EHLO {HELO}")

    def envelope(self, sender: str, *recipients: str, options: str = "") -> None:
        """MAIL, RCPT and DATA, all of them accepted."""
        assert self.ask(f"MAIL FROM:<{sender}>{options}").startswith("250 ")
        for recipient in recipients:
            assert self.ask(f"RCPT TO:<{recipient}>").startswith("250 ")
        assert self.ask("DATA").startswith("354 ")


def ask_for_reports(port: int, token: str, sender: str, mail_words: str, **wishes: str) -> None:
    """Send a message whose sender says what it wants to hear: `mail_words` with MAIL, and for each
    recipient (its local part, at example.test) what stands with RCPT."""
    with Client(port) as client:
        assert "DSN" in client.greet()
        assert client.ask(f"MAIL FROM:<{sender}> {mail_words}").startswith("250 ")
        for name, words in wishes.items():
            assert client.ask(f"RCPT TO:<{name}@example.test> {words}").startswith("250 ")
        assert client.ask("DATA").startswith("354 ")
        client.send(message(token) + b".\r\n")
        assert client.reply().startswith("250 ")


def sample_files() -> list[Path]:
    """The messages of CPython's own email tests, of the running Python or of Debian's package."""
    running = Path(sysconfig.get_path("stdlib")) / "test/test_email/data"
    aside = Path(__file__).parents[3] / ".test/debs/usr/lib"
    data = "python3*/test/test_email/data"
    for directory in (running, *sorted(Path("/usr/lib").glob(data)), *sorted(aside.glob(data))):
        if found := sorted(directory.glob("msg_*.txt")):
            return found
    return []


def with_crlf(octets: bytes) -> bytes:
    """Line ends made CRLF, one at the end included; a CR that ends no line stays as it is."""
    text = re.sub(rb"\r?\n", b"\r\n", octets)
    return text if not text or text.endswith(b"\r\n") else text + b"\r\n"


def has_bare(octets: bytes) -> bool:
    """Whether there is a CR without LF, or LF without CR."""
    return re.search(rb"\r(?!\n)|(?<!\r)\n", octets) is not None
