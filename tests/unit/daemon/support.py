"""What the tests of the daemon share: a configuration in a directory, a running server with a next hop."""

from __future__ import annotations

import asyncio
import io
import smtplib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from mqcd.config.load import load
from mqcd.config.settings import Settings
from mqcd.core.events import Verb
from mqcd.core.model import Deferred, Delivered, Recipient
from mqcd.daemon.server import Server
from mqcd.net.clock import SystemClock
from mqcd.net.control.client import Control
from mqcd.ops.log.log import Log
from mqcd.sink.outputs import Received
from mqcd.sink.rules import Rules
from mqcd.sink.server import Sink, SinkSettings, start
from tests.fakes.observer import RecordingObserver

CONF = """\
<mailserver>
  <application><announcehost>mx.example.org</announcehost>{application}</application>
  <mta>
    <queue>
      <retry_delays>{retry_delays}</retry_delays>
      <shards>1</shards><journal><segmentsize>1M</segmentsize><segments>4</segments></journal>
      {queue}
    </queue>
    <submit>{submit}<listeners>
      <listener name="smtp" interface="127.0.0.1" port="{port}">
        <server><relay_clients>{relay_clients}</relay_clients></server>
      </listener>
    </listeners></submit>
    <deliver>
      <dns servers="127.0.0.1"/>
      <relays><relay address="127.0.0.1:{sink}"/></relays>{deliver}
    </deliver>{report}
  </mta>
  <ops interface="{interface}" port="{ops}"><node>{node}</node><log level="{level}"/>{ops_more}</ops>
</mailserver>
"""

DEFAULTS = {
    "application": "",
    "retry_delays": "15m",
    "queue": "",
    "deliver": "",
    "report": "",
    "submit": "",
    "ops_more": "",
    "port": "0",
    "relay_clients": "127.0.0.1",
    "sink": "9",
    "ops": "0",
    "interface": "127.0.0.1",
    "node": "n1",
    "level": "info",
}


def write_conf(directory: Path, **changes: str) -> Path:
    """A configuration file whose %DIRVAR% is `var` in `directory`."""
    conf = directory / "conf" / "mqcd.xml"
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text(CONF.format_map({**DEFAULTS, **changes}))
    return conf


def settings_of(conf: Path) -> Settings:
    """What the file says."""
    return load(conf, var=None, hostname="mx.example.org").settings


class Ear(RecordingObserver):
    """Remembers, and wakes whoever waits for what becomes of a recipient."""

    def __init__(self) -> None:
        super().__init__()
        self.news = asyncio.Event()

    def attempted(self, at: int, recipients: Sequence[Recipient], destination: str) -> None:
        super().attempted(at, recipients, destination)
        self.news.set()

    def delivered(self, at: int, recipient: Recipient, verdict: Delivered) -> None:
        super().delivered(at, recipient, verdict)
        self.news.set()

    def deferred(self, at: int, recipient: Recipient, verdict: Deferred) -> None:
        super().deferred(at, recipient, verdict)
        self.news.set()


@dataclass(kw_only=True)
class Running:
    """A server in this process, and what is around it."""

    conf: Path
    server: Server
    sink: Sink
    observer: Ear
    log: io.StringIO
    arrived: list[Received] = field(default_factory=list)

    async def send(self, *recipients: str, sender: str = "me@here.example") -> None:
        """Send one small message; raises what smtplib raises."""
        await asyncio.to_thread(submit, self.server.doors.all[0].port, sender, recipients)

    async def get(self, path: str) -> tuple[int, str]:
        """A page of the ops listener, or of the control socket: status and body."""
        if path.startswith("/v1/"):
            return await asyncio.to_thread(self.control.get, path, 30)
        return await asyncio.to_thread(fetch, self.server.ops_port, path)

    @property
    def control(self) -> Control:
        return Control(self.server.settings.ops.control.path)

    async def heard(self, verb: Verb) -> None:
        """Return once the server has told of a `verb`."""
        while not self.observer.count(verb):
            self.observer.news.clear()
            await self.observer.news.wait()


async def arrived(sink: Sink, count: int) -> None:
    """Return once the sink has so many messages."""
    while sink.counters.messages < count:
        await asyncio.sleep(0)


def submit(port: int, sender: str, recipients: Sequence[str]) -> None:
    """One small message by smtplib."""
    with smtplib.SMTP("127.0.0.1", port, local_hostname="client.example", timeout=60) as client:
        client.sendmail(sender, list(recipients), b"Subject: hello\r\n\r\nWorld\r\n")


def fetch(port: int, path: str) -> tuple[int, str]:
    """One page by HTTP."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@asynccontextmanager
async def running(
    directory: Path, *, rules: Sequence[str] = (), bind_only: bool = False, **changes: str
) -> AsyncIterator[Running]:
    """A server on ports of its own, open unless `bind_only`; stopped at the end."""
    clock = SystemClock()
    arrived: list[Received] = []
    sink = await start(SinkSettings(rules=Rules.parse(rules)), now_ms=clock.now, on_received=arrived.append)
    try:
        conf = write_conf(directory, sink=str(sink.port), **changes)
        settings = settings_of(conf)
        stream = io.StringIO()
        observer = Ear()
        server = Server(
            settings,
            clock=clock,
            log_to=Log(clock, stream, settings.ops.log),
            observers=[observer],
            conf=conf,
        )
        try:
            await server.bind()
            await server.listen()
            if not bind_only:
                await server.open()
            yield Running(conf=conf, server=server, sink=sink, observer=observer, log=stream, arrived=arrived)
        finally:
            await server.stop()
    finally:
        await sink.close()
