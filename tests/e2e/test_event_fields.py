"""Every field that readers rely on stands in the files that a real server writes."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiosmtpd.smtp import SMTP

from tests.contract.schema import FIELDS, allowed
from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.ledger import Ledger
from tests.e2e.kit.nameserver import NameServer
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.receivers import LoopThread
from tests.fakes.certificates import Authority

NAMES = {
    "origin.test": {"A": ["127.0.0.2"]},
    "site.test": {"MX": ["10 secure.test."]},
    "secure.test": {"A": ["127.0.0.2"]},
    "never.test": {"A": ["127.0.0.3"]},
    "blocks.test": {"A": ["127.0.0.5"]},
    "gone.test": {"A": ["127.0.0.9"]},
}
WAYS = '<zones><zone name="bulk" sources="127.0.0.4"><match header="X-Class: Bulk"/></zone></zones>'
BULK = b"X-Class: Bulk\r\nMessage-ID: <bulk@origin.test>\r\n"
ELSEWHERE = {
    "user": "test_logins has clients that log in",
    "tenant": "test_export of the unit tests has one",
    **dict.fromkeys(
        ("batch", "by", "until", "target", "undoes", "undone"),
        "of operators' actions: test_export of the unit tests has every one",
    ),
    "possibly_delivered": "test_verdicts has a connection that breaks behind the final dot",
    "left_out": "only after a flood; the unit tests have one",
}


class Taker:
    """Takes every message."""

    async def handle_DATA(self, *_: object) -> str:
        return "250 2.0.0 taken"


@pytest.fixture
def secure(loop_thread: LoopThread, tmp_path: Path) -> Iterator[int]:
    """The port of a next hop at 127.0.0.2 that offers TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(Authority(tmp_path).sign("secure", "DNS:secure.test"))

    async def listen() -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            lambda: SMTP(Taker(), hostname="secure.test", tls_context=context), "127.0.0.2", 0
        )

    async def close() -> None:
        server.close()

    server = loop_thread.call(listen())
    yield server.sockets[0].getsockname()[1]
    loop_thread.call(close())


@pytest.fixture
def names(loop_thread: LoopThread) -> Iterator[NameServer]:
    made = NameServer(loop_thread, NAMES)
    yield made
    made.close()


def test_each_field_appears(
    make_server: MakeServer, make_receiver: MakeReceiver, secure: int, names: NameServer
) -> None:
    make_receiver("*=550 5.1.1 nobody", host="127.0.0.3", port=secure)
    make_receiver("*=reply:connect:421 4.7.1 your address is listed", host="127.0.0.5", port=secure)
    domains = ("site.test", "never.test", "blocks.test", "gone.test")
    plan = Plan(
        door={"relay_clients": "", "relay_domains": " | ".join(domains)},
        deliver={"smtpport": secure, "local_mx": "Y"},
        client={"anonssl": "Y"},
        dns={"servers": f"127.0.0.1:{names.port}"},
        queue={"retry_delays": "1h"},
        ways=WAYS,
    )
    server = make_server(plan).start()
    for domain in domains:
        mail.send(server.port, BULK + mail.message(domain), f"ann@{domain}")
    with smtplib.SMTP("127.0.0.1", server.port) as client:
        client.docmd("GET / HTTP/1.1")
        with pytest.raises(smtplib.SMTPRecipientsRefused):
            client.sendmail("bob@a.test", ["eve@elsewhere.test"], b"no")
    server.events("delivered", 2)
    server.events("deferred", 2)
    assert server.stop() == 0
    seen: dict[str, set[str]] = defaultdict(set)
    told = Ledger(server.var).events
    for event in told:
        seen[event["event"]] |= set(event)
    assert set(FIELDS) - {name for each in seen.values() for name in each} == set(ELSEWHERE)
    for verb in ("attempted", "delivered", "connected", "refused"):
        assert set(allowed(verb)) - seen[verb] <= set(ELSEWHERE), verb
    for each in told:
        if each["event"] == "accepted" and each["origin"] == "smtp":
            line = server.event("accepted", spid=each["spid"])
            assert each["message_id"] == line["message_id"] == "<bulk@origin.test>"
            assert each["session"] == line["session"]
    [blocked] = [each for each in told if each["event"] == "deferred" and each["domain"] == "blocks.test"]
    assert (blocked["phase"], blocked["code"], blocked["class"]) == ("greeting", 421, "policy")
    assert (blocked["remote_addr"], blocked["source_addr"]) == ("127.0.0.5", "127.0.0.4")
