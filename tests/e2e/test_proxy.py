"""Mail through a real proxy: the client that HAProxy names is the client."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.waiting import DEADLINE, poll

pytestmark = pytest.mark.needs("haproxy")
CLIENT = "127.0.0.9"

CONF = """
defaults
  mode tcp
  timeout connect 5s
  timeout client 30s
  timeout server 30s
listen mail
  bind 127.0.0.1:{port}
  server mqcd 127.0.0.1:{to} source 127.0.0.2 {send} check {check}
"""


@contextmanager
def haproxy(directory: Path, to: int, send: str, check: str) -> Iterator[int]:
    """A proxy that names its clients; gives its port."""
    port = free_port()
    conf = directory / "haproxy.cfg"
    conf.write_text(CONF.format(port=port, to=to, send=send, check=check))
    process = subprocess.Popen(["haproxy", "-db", "-f", str(conf)], stderr=subprocess.DEVNULL)
    try:
        poll(lambda: _answers(port) or None, "haproxy's answer")
        yield port
    finally:
        process.terminate()
        process.wait(DEADLINE)


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(("send", "check"), [("send-proxy", "check-send-proxy"), ("send-proxy-v2", "")])
def test_the_client_is_the_one_that_haproxy_names(
    make_server: MakeServer, receiver: Receiver, tmp_path: Path, send: str, check: str
) -> None:
    server = make_server(
        Plan(
            relays=relay(receiver.port),
            door={"relay_clients": CLIENT},
            listener_elements="<proxies>127.0.0.2</proxies>",
        )
    ).start()
    with haproxy(tmp_path, server.port, send, check) as port:
        mail.send(port, mail.message("proxied"), "to@example.test", source=CLIENT)
    header, _ = mail.split(receiver.to("to@example.test").content)
    assert header["client"].decode() == CLIENT
    assert server.event("accepted", recipient="to@example.test")["client"] == CLIENT
    assert server.stop() == 0
