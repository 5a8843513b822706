"""Delivery over real sockets to the sink, with the real dialer and the real clock."""

import asyncio
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mqcd.config.settings import ClientSettings, HostPort, RelaySettings
from mqcd.core.events import Verb
from mqcd.core.model import Body, Bounced, Deferred, Delivered, Envelope, Phase, Submission, Verdict
from mqcd.deliver.service import Deliverer
from mqcd.net.clock import SystemClock
from mqcd.net.dialer import SystemDialer
from mqcd.sink.outputs import DEFAULT_EXTENSIONS, OPTIONAL_EXTENSIONS, Limits, Received
from mqcd.sink.rules import Rules
from mqcd.sink.server import SinkSettings, start
from tests.fakes.certificates import Authority
from tests.fakes.observer import RecordingObserver
from tests.fakes.resolver import FakeResolver
from tests.fakes.store import MemoryStore
from tests.unit.deliver.kit import CONTENT, RELAYED, SCHEDULE

LMTP = Limits(lmtp=True)
ALL = Limits(extensions=(*DEFAULT_EXTENSIONS, *OPTIONAL_EXTENSIONS))


@dataclass
class Road:
    """A store, a deliverer, and what the sink at its end has taken."""

    store: MemoryStore
    observer: RecordingObserver
    deliverer: Deliverer
    received: list[Received]

    async def send(
        self,
        *recipients: str,
        content: bytes = CONTENT,
        body: Body = Body.SEVEN,
        dsn: str = "",
        notify: Sequence[str] = (),
    ) -> None:
        envelope = Envelope(
            spid=self.store.reserve(len(recipients) > 1),
            sender="from@example.org",
            received=SystemClock().now(),
            body=body,
            dsn=dsn,
        )
        await self.store.enqueue(
            Submission(envelope=envelope, recipients=recipients, content=content, recipient_dsn=notify)
        )

    def verdicts(self) -> dict[str, Verdict | None]:
        """By the local part of the recipient."""
        heard = self.observer.of(Verb.DELIVERED, Verb.DEFERRED, Verb.BOUNCED)
        return {each.recipient.address.split("@")[0]: each.verdict for each in heard if each.recipient}


@asynccontextmanager
async def road(
    rules: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
    timeout: int = 60_000,
    limits: Limits | None = None,
) -> AsyncIterator[Road]:
    """Everything from the store to the sink, running."""
    clock, observer = SystemClock(), RecordingObserver()
    received: list[Received] = []
    limits = limits or Limits()
    settings = SinkSettings(rules=Rules.parse(rules), tls=tls, limits=limits)
    sink = await start(settings, now_ms=clock.now, on_received=received.append)
    store = MemoryStore(clock, observer)
    await store.open()
    relay = RelaySettings(address=HostPort(host="127.0.0.1", port=sink.port), lmtp=limits.lmtp)
    client = ClientSettings(announcehost="mx.example.org", timeout=timeout)
    deliverer = Deliverer(
        replace(RELAYED, relays=(relay,), client=client),
        SCHEDULE,
        store=store,
        clock=clock,
        resolver=FakeResolver(),
        dialer=SystemDialer(),
        observer=observer,
    )
    await deliverer.start()
    try:
        yield Road(store, observer, deliverer, received)
    finally:
        await deliverer.stop(1000)
        await sink.close()
        await store.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\r\n",
        b".\r\n",
        b"Subject: dots\r\n\r\n.\r\n..\r\n.x\r\nend\r\n",
        b"Subject: long\r\n\r\n" + b".0123456789\r\n" * 400_000,
        bytes(range(128, 256)) + b"\r\n",
    ],
    ids=["empty", "one line end", "one dot", "dots", "5 MB", "8 bit"],
)
@pytest.mark.parametrize("chunking", [False, True])
async def test_what_arrives_is_what_was_accepted(content: bytes, chunking: bool) -> None:
    async with road(limits=ALL if chunking else None) as way:
        await way.send("to@example.com", content=content, body=Body.EIGHT)
        await way.deliverer.drained()
        assert [mail.content for mail in way.received] == [content]
        assert way.received[0].body == "8BITMIME"
        assert way.received[0].chunked is chunking


@pytest.mark.parametrize("chunking", [False, True])
async def test_a_break_among_lmtp_replies_settles_some(chunking: bool) -> None:
    limits = replace(LMTP, extensions=ALL.extensions) if chunking else LMTP
    rules = ["full@*=reply:dot:452 4.2.2 full", "no@*=reply:dot:550 5.2.1 closed", "cut@*=drop:dot"]
    async with road(rules, limits=limits) as way:
        await way.send(*(f"{name}@example.com" for name in ("good", "full", "no", "cut", "behind")))
        await way.deliverer.drained()
        verdicts = way.verdicts()
        kinds = {name: type(verdict).__name__ for name, verdict in verdicts.items()}
        assert kinds == {
            "good": "Delivered",
            "full": "Deferred",
            "no": "Bounced",
            "cut": "Deferred",
            "behind": "Deferred",
        }
        doubtful = [name for name, v in verdicts.items() if isinstance(v, Deferred) and v.possibly_delivered]
        assert sorted(doubtful) == ["behind", "cut"]
        assert [mail.recipients for mail in way.received] == [("good@example.com",)]


async def test_dsn_parameters_reach_a_next_hop_with_dsn() -> None:
    asked = {"dsn": "RET=HDRS ENVID=abc", "notify": ("NOTIFY=DELAY ORCPT=rfc822;a@example.net", "")}
    for limits in (ALL, Limits()):
        async with road(limits=limits) as way:
            await way.send("a@example.com", "b@example.com", **asked)  # type: ignore[arg-type]
            await way.deliverer.drained()
            [mail] = way.received
            offered = limits is ALL
            assert mail.dsn == (asked["dsn"] if offered else "")
            assert mail.recipient_dsn == (asked["notify"] if offered else ())


async def test_many_messages_over_few_connections() -> None:
    async with road() as way:
        for number in range(300):
            await way.send(f"a{number}@example.com", f"b{number}@example.com")
        await way.deliverer.drained()
        assert len(way.received) == 300
        assert way.observer.count(Verb.DELIVERED) == 600
        assert way.observer.count(Verb.CONNECTED) <= RELAYED.maxserverconnections


async def test_refusals_drops_and_stalls_concern_those_that_they_hit() -> None:
    rules = ["busy@*=450 4.2.1 busy", "no@*=550 5.1.1 no", "drop@*=drop:dot", "stall@*=stall:rcpt"]
    async with road(rules, timeout=300) as way:
        for name in ("busy", "no", "drop", "stall", "good"):
            await way.send(f"{name}@example.com")
        await way.deliverer.drained()
        verdicts = way.verdicts()
        assert {name: type(verdict).__name__ for name, verdict in verdicts.items()} == {
            "busy": "Deferred",
            "no": "Bounced",
            "drop": "Deferred",
            "stall": "Deferred",
            "good": "Delivered",
        }
        dropped, stalled = verdicts["drop"], verdicts["stall"]
        assert isinstance(dropped, Deferred)
        assert dropped.possibly_delivered
        assert isinstance(stalled, Deferred)
        assert not stalled.possibly_delivered


@pytest.mark.needs("openssl")
async def test_mail_goes_over_tls_where_it_is_offered(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority(tmp_path).sign("localhost", "DNS:localhost"))
    async with road(tls=context) as way:
        for number in range(3):
            await way.send(f"to{number}@example.com")
        await way.deliverer.drained()
        assert [mail.tls for mail in way.received] == [True] * 3
        verdict = way.observer.of(Verb.DELIVERED)[0].verdict
        assert isinstance(verdict, Delivered)
        assert verdict.attempt.tls == "TLSv1.3"
        assert verdict.attempt.remote_addr == "127.0.0.1"


# ---------------------------------------------------------------- replies that are none, or wrong

STAGES = ["connect", "ehlo", "mail", "rcpt", "data", "dot"]
PLACES = [("connect", Phase.GREETING), *((stage, Phase(stage)) for stage in STAGES[1:])]


async def one_verdict(
    rule: str, timeout: int = 60_000, limits: Limits | None = None
) -> tuple[Verdict, list[Received]]:
    """What becomes of one message at a sink that follows this rule for everyone, and what has arrived."""
    async with road([f"*={rule}"], timeout=timeout, limits=limits) as way:
        await way.send("to@example.com")
        await way.deliverer.drained()
        [heard] = way.observer.of(Verb.DELIVERED, Verb.DEFERRED, Verb.BOUNCED)
        assert heard.verdict is not None
        return heard.verdict, way.received


@pytest.mark.parametrize("fault", ["garbage", "endless"])
@pytest.mark.parametrize(("stage", "phase"), PLACES)
async def test_what_is_no_reply_defers_and_ends_the_session(fault: str, stage: str, phase: Phase) -> None:
    verdict, received = await one_verdict(f"{fault}:{stage}")
    assert isinstance(verdict, Deferred)
    assert (verdict.reply.status, verdict.attempt.phase) == ("4.5.0", phase)
    assert verdict.possibly_delivered is (stage == "dot")
    assert received == []


async def test_an_endless_reply_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        verdict, _ = await one_verdict("endless:mail")
        assert isinstance(verdict, Deferred)
        assert "more than 200 lines" in verdict.reply.text
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("rule", "kind", "phase"),
    [
        ("connect:354 what", Deferred, Phase.GREETING),
        ("connect:554 5.7.1 not you", Deferred, Phase.GREETING),
        ("ehlo:354 what", Deferred, Phase.EHLO),
        ("ehlo:421 4.3.2 later", Deferred, Phase.EHLO),
        ("mail:354 what", Deferred, Phase.MAIL),
        ("mail:452 4.3.1 full", Deferred, Phase.MAIL),
        ("mail:550 5.7.1 not from you", Bounced, Phase.MAIL),
        ("rcpt:354 what", Deferred, Phase.RCPT),
        ("rcpt:421 4.3.2 later", Deferred, Phase.RCPT),
        # Nothing has been sent that a server could keep.
        ("data:250 2.0.0 fine", Deferred, Phase.DATA),
        ("data:451 4.3.0 later", Deferred, Phase.DATA),
        ("data:554 5.7.1 never", Bounced, Phase.DATA),
        ("dot:354 what", Deferred, Phase.DOT),
        ("dot:451 4.3.0 later", Deferred, Phase.DOT),
        ("dot:421 4.3.2 later", Deferred, Phase.DOT),
        ("dot:554 5.6.0 never", Bounced, Phase.DOT),
    ],
)
@pytest.mark.parametrize("limits", [None, LMTP], ids=["smtp", "lmtp"])
async def test_wrong_replies_deliver_nothing(
    rule: str, kind: type[Deferred | Bounced], phase: Phase, limits: Limits | None
) -> None:
    verdict, received = await one_verdict(f"reply:{rule}", limits=limits)
    assert isinstance(verdict, kind)
    assert verdict.attempt.phase is phase
    assert received == []


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("reply:data:451 4.3.0 later", Deferred),
        ("reply:data:554 5.7.1 never", Bounced),
        ("reply:dot:354 what", Deferred),
        ("reply:dot:554 5.6.0 never", Bounced),
        ("drop:data", Deferred),
        ("drop:dot", Deferred),
        ("garbage:dot", Deferred),
        ("endless:data", Deferred),
    ],
)
async def test_wrong_replies_to_chunks_deliver_nothing(rule: str, kind: type[Deferred | Bounced]) -> None:
    verdict, received = await one_verdict(rule, limits=ALL)
    assert isinstance(verdict, kind)
    assert received == []


@pytest.mark.parametrize("stage", STAGES)
async def test_a_reply_that_comes_drop_by_drop_is_understood(stage: str) -> None:
    verdict, received = await one_verdict(f"drip:{stage}:0")
    assert isinstance(verdict, Delivered)
    assert len(received) == 1


@pytest.mark.parametrize(("stage", "phase"), [("mail", Phase.MAIL), ("dot", Phase.DOT)])
async def test_drops_gain_a_slow_server_no_time(stage: str, phase: Phase) -> None:
    verdict, received = await one_verdict(f"drip:{stage}:3600000", timeout=300)
    assert isinstance(verdict, Deferred)
    assert (verdict.reply.status, verdict.attempt.phase) == ("4.4.2", phase)
    assert verdict.possibly_delivered is (stage == "dot")
    assert len(received) == (stage == "dot")


@pytest.mark.parametrize("fault", ["stall:connect", "stall:ehlo", "stall:rcpt", "slow:5000"])
async def test_four_tarpits_do_not_hold_up_a_healthy_host(fault: str) -> None:
    clock, observer = SystemClock(), RecordingObserver()
    hosts = {f"tar{number}.example": fault for number in range(4)} | {"healthy.example": "accept"}
    sinks = {
        domain: await start(SinkSettings(rules=Rules.parse([f"*={action}"])), now_ms=clock.now)
        for domain, action in hosts.items()
    }
    relays = tuple(
        RelaySettings(address=HostPort(host="127.0.0.1", port=sink.port), destdomains=(domain,))
        for domain, sink in sinks.items()
    )
    store = MemoryStore(clock, observer)
    await store.open()
    deliverer = Deliverer(
        replace(RELAYED, relays=relays, maxconnections=8),
        SCHEDULE,
        store=store,
        clock=clock,
        resolver=FakeResolver(),
        dialer=SystemDialer(),
        observer=observer,
    )
    way = Road(store, observer, deliverer, [])
    for domain in [*hosts][:4] * 5:
        await way.send(f"to@{domain}")
    await deliverer.start()
    try:
        async with asyncio.timeout(10):
            for count in range(1, 4):
                await way.send("to@healthy.example")
                while observer.count(Verb.DELIVERED) < count:
                    await asyncio.sleep(0.01)
    finally:
        await deliverer.stop(100)
        for sink in sinks.values():
            await sink.close()
        await store.close()
