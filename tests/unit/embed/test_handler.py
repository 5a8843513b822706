"""The queue inside aiosmtpd: real controllers, smtplib, kills, and what the directory holds afterwards."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import smtplib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, LoginPassword, Session

from mqcd.cli.main import main
from mqcd.core.errors import StoreBusy, StoreUnavailable
from mqcd.embed import Queue, QueueHandler

PAGE = Path(__file__).parents[3] / "docs" / "embedding.md"
SENDER = "from@example.net"
LETTER = b"Subject: a\r\n\r\nbody\r\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(handler: Any) -> Iterator[int]:
    """A controller with the handler, closed and stopped at the end; its port."""
    controller = Controller(handler, hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        yield controller.port
    finally:
        if isinstance(handler, QueueHandler):
            handler.close()
        controller.stop()


def send(port: int, *recipients: str) -> None:
    with smtplib.SMTP("127.0.0.1", port) as client:
        client.sendmail(SENDER, recipients or ("to@example.com",), LETTER)


def queued(root: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What `queue ls` finds there."""
    capsys.readouterr()
    assert main(["--var", str(root), "queue", "ls", "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_controller_gets_the_queue_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(QueueHandler(tmp_path)) as port:
        send(port, "one@example.com", "two@example.org")
        live = queued(tmp_path, capsys)
    for found in (live, queued(tmp_path, capsys)):
        assert {(each["sender"], each["recipient"], each["area"]) for each in found} == {
            (SENDER, "one@example.com", "incoming"),
            (SENDER, "two@example.org", "incoming"),
        }
    assert main(["--var", str(tmp_path), "queue", "cat", live[0]["spid"]]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Received: from ")
    assert shown.replace("\r", "").endswith("\nSubject: a\n\nbody\n")
    assert main(["--var", str(tmp_path), "fsck"]) == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_documents_program_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: signal.Signals
) -> None:
    program, port = tmp_path / "program.py", free_port()
    program.write_text(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0])
    command = [sys.executable, str(program), str(tmp_path / "mq"), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PAGE.parents[1]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with smtplib.SMTP("127.0.0.1", port) as client:
            for number in range(20):
                client.sendmail(SENDER, [f"to{number}@example.com"], LETTER)
            process.send_signal(how)
            assert process.wait(30) == (-how if how is signal.SIGKILL else 0)
            client.close()
    with serving(QueueHandler(tmp_path / "mq")) as again:
        send(again)
    expected = {"to@example.com", *(f"to{number}@example.com" for number in range(20))}
    assert {each["recipient"] for each in queued(tmp_path / "mq", capsys)} == expected


def test_a_busy_directory_is_an_error_and_then_451(tmp_path: Path) -> None:
    with serving(QueueHandler(tmp_path)) as port:
        send(port)
        second = QueueHandler(tmp_path)
        controller = Controller(second, hostname="127.0.0.1", port=free_port())
        controller.start()
        with pytest.raises(StoreBusy):
            second.open(controller.loop)
        with pytest.raises(smtplib.SMTPSenderRefused) as refused:
            send(controller.port)
        assert refused.value.smtp_code == 451
        controller.stop()


def test_a_closed_queue_takes_mail_once_opened_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = QueueHandler(tmp_path)
    controller = Controller(handler, hostname="127.0.0.1", port=free_port())
    controller.start()
    send(controller.port)
    handler.close()
    handler.close()
    with pytest.raises(smtplib.SMTPSenderRefused):
        send(controller.port)
    handler.open(controller.loop)
    send(controller.port)
    handler.close()
    controller.stop()
    assert len(queued(tmp_path, capsys)) == 2


async def test_a_close_that_is_cancelled_closes_all_the_same(tmp_path: Path) -> None:
    handler = QueueHandler(tmp_path)
    await handler.open_here()
    closing = asyncio.create_task(handler.close_here())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    async with Queue(tmp_path):
        pass


CONFIG = """<mailserver>
  <mta><deliver><relays><relay address="127.0.0.1:{port}"/></relays></deliver></mta>
</mailserver>
"""


class NextHop:
    """Takes mail from the queue."""

    def __init__(self) -> None:
        self.content = b""
        self.taken = threading.Event()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.content = envelope.content
        self.taken.set()
        return "250 OK"


def test_delivery_takes_what_an_earlier_run_left(tmp_path: Path) -> None:
    next_hop, config = NextHop(), tmp_path / "mqcd.xml"
    with serving(QueueHandler(tmp_path / "mq")) as port:
        send(port)
    with serving(next_hop) as target:
        config.write_text(CONFIG.format(port=target))
        handler = QueueHandler(tmp_path / "mq", deliver=True, config=config)
        controller = Controller(handler, hostname="127.0.0.1", port=free_port())
        controller.start()
        handler.open(controller.loop)
        assert next_hop.taken.wait(30)
        handler.close()
        controller.stop()
    assert next_hop.content.endswith(LETTER)


class Hooks:
    """A handler's hooks, called as a server would for one client."""

    def __init__(self, handler: QueueHandler, client: str = "192.0.2.1") -> None:
        loop = asyncio.get_running_loop()
        self.handler = handler
        self.server = SMTP(handler, hostname="mx.example.org", loop=loop)
        self.session = Session(loop)
        self.session.peer = (client, 4711)  # type: ignore[assignment]
        self.envelope = Envelope()

    async def mail(self, address: str = SENDER, *options: str) -> str:
        return await self.handler.handle_MAIL(
            self.server, self.session, self.envelope, address, list(options)
        )

    async def rcpt(self, address: str) -> str:
        return await self.handler.handle_RCPT(self.server, self.session, self.envelope, address, [])

    async def data(self, content: bytes) -> str:
        self.envelope.content = self.envelope.original_content = content
        return await self.handler.handle_DATA(self.server, self.session, self.envelope)


@pytest.mark.parametrize(
    ("client", "login", "address", "code"),
    [
        ("192.0.2.1", False, "a@elsewhere.example", "554"),
        ("192.0.2.1", False, "a@Example.ORG", "250"),
        ("192.0.2.1", False, "Postmaster", "250"),
        ("192.0.2.1", True, "a@elsewhere.example", "250"),
        ("198.51.100.7", False, "a@elsewhere.example", "250"),
        ("::1", False, "a@elsewhere.example", "250"),
        ("::1", False, "no address", "553"),
        ("::1", False, "ü@example.org", "553"),
    ],
)
async def test_strangers_send_to_named_domains_only(
    tmp_path: Path, client: str, login: bool, address: str, code: str
) -> None:
    handler = QueueHandler(tmp_path, domains=["example.org"], clients=["198.51.100.0/24"])
    hooks = Hooks(handler, client)
    hooks.session.authenticated = login
    assert (await hooks.rcpt(address))[:3] == code


async def test_content_that_others_may_misread_is_refused(tmp_path: Path) -> None:
    hooks = Hooks(QueueHandler(tmp_path), "127.0.0.1")
    await hooks.mail()
    await hooks.rcpt("to@example.com")
    assert (await hooks.data(b"a\rb\r\n")).startswith("554 5.6.0 ")
    assert (await hooks.data(b"a\0b\r\n")).startswith("554 5.6.0 ")
    assert (await hooks.data(b"Received: x\r\n" * 50 + b"\r\n")).startswith("554 5.4.6 ")
    await hooks.handler.close_here()


async def test_recipients_are_limited(tmp_path: Path) -> None:
    hooks = Hooks(QueueHandler(tmp_path), "127.0.0.1")
    replies = [await hooks.rcpt(f"to{number}@example.com") for number in range(1001)]
    assert [reply[:3] for reply in replies[-2:]] == ["250", "452"]


async def test_a_large_message_with_login_is_queued_as_it_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hooks = Hooks(QueueHandler(tmp_path, received=False))
    hooks.session.authenticated = True
    hooks.session.auth_data = LoginPassword(b"ann", b"secret")  # type: ignore[assignment]
    assert (await hooks.mail("<>", "BODY=8BITMIME")).startswith("250")
    assert (await hooks.rcpt("to@example.com")).startswith("250")
    assert (await hooks.data(b"\xfc\n" * 200_000)).startswith("250 2.0.0 Ok: queued as ")
    await hooks.handler.close_here()
    [found] = await asyncio.to_thread(queued, tmp_path, capsys)
    assert (found["sender"], found["size"]) == ("", 600_000)


async def test_an_address_that_a_subclass_broke_is_not_queued(tmp_path: Path) -> None:
    hooks = Hooks(QueueHandler(tmp_path), "127.0.0.1")
    await hooks.mail()
    hooks.envelope.rcpt_tos.append("no address\r\nX")
    assert (await hooks.data(LETTER)).startswith("451 ")
    await hooks.handler.close_here()


async def test_a_queue_belongs_to_one_loop(tmp_path: Path) -> None:
    handler = QueueHandler(tmp_path)
    await handler.open_here()
    with pytest.raises(RuntimeError):
        await asyncio.to_thread(asyncio.run, handler.open_here())
    await handler.close_here()
    with pytest.raises(StoreUnavailable):
        await handler._opened()


async def test_a_fault_is_temporary(tmp_path: Path) -> None:
    assert (await QueueHandler(tmp_path).handle_exception(RuntimeError("x"))).startswith("451 ")
