"""The stage: a directory, a receiver that refuses as the play wants it, and the real server.

The configuration is a file like any other, with short retry delays and a small journal, so that a few
seconds and some megabytes are enough. Ports are the system's choice; everything binds to 127.0.0.1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mqcd.config.load import load
from mqcd.config.settings import Settings
from mqcd.core.address import domain_of
from mqcd.core.ports import Clock, Observer
from mqcd.daemon.server import Server
from mqcd.demo.letters import BUSY, GREYLISTED, REJECTING
from mqcd.ops.log.log import Log
from mqcd.sink.outputs import Received
from mqcd.sink.rules import Action, Refuse, Rules, parse_rule
from mqcd.sink.server import SinkSettings, start

_CONF = """\
<mailserver>
  <application>
    <announcehost>mail.here.example</announcehost>
  </application>
  <mta>
    <queue>
      <shards>1</shards>
      <retry_delays>2s | 1h</retry_delays>
      <retry_granularity>1s</retry_granularity>
      <retry_jitter>0%</retry_jitter>
      <minfree>16M</minfree>
      <journal>
        <segmentsize>4M</segmentsize>
        <segments>4</segments>
        <seal_age>1s</seal_age>
      </journal>
    </queue>
    <submit>
      <listeners>
        <listener name="smtp" interface="127.0.0.1" port="0">
          <server>
            <relay_clients>127.0.0.1</relay_clients>
          </server>
        </listener>
      </listeners>
    </submit>
    <deliver>
      <dns servers="127.0.0.1"/>
      <relays>
        <relay address="127.0.0.1:{sink}"/>
      </relays>
    </deliver>
  </mta>
  <ops interface="127.0.0.1" port="0">
    <node>demo</node>
  </ops>
</mailserver>
"""
HOSTNAME = "mail.here.example"


class Receiving(Rules):
    """Rules with a memory: recipients of one domain are refused once, then accepted."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        super().__init__(
            (
                parse_rule(f"*@{BUSY}=451 4.3.2 Nobody has time for you"),
                parse_rule(f"*@{REJECTING}=550 5.1.1 No such user here"),
            )
        )
        self._seen: set[str] = set()

    def for_recipient(self, address: str) -> Action:
        """What the rules say, and for greylisted recipients 450 at the first try."""
        if domain_of(address) == GREYLISTED and address not in self._seen:
            self._seen.add(address)
            return Refuse(reply="450 4.7.1 Greylisted, come back later")
        return super().for_recipient(address)


@dataclass(slots=True, kw_only=True)
class Stage:
    """Everything that runs."""

    conf: Path
    settings: Settings
    server: Server
    sink_port: int
    arrived: list[Received] = field(default_factory=list)
    """What the receiver took."""

    @property
    def smtp_port(self) -> int:
        return self.server.doors.all[0].port


def conf_of(directory: Path) -> Path:
    """Where the configuration is."""
    return directory / "conf" / "mqcd.xml"


@asynccontextmanager
async def set_up(directory: Path, clock: Clock, observer: Observer) -> AsyncIterator[Stage]:
    """Run receiver and server; at the end both are stopped. The log goes to a file beside them."""
    arrived: list[Received] = []
    sink = await start(SinkSettings(rules=Receiving()), now_ms=clock.now, on_received=arrived.append)
    try:
        conf = conf_of(directory)
        conf.parent.mkdir(parents=True, exist_ok=True)
        conf.write_text(_CONF.format(sink=sink.port))
        settings = load(conf, var=None, hostname=HOSTNAME).settings
        with (directory / "log").open("w") as stream:
            log = Log(clock, stream, settings.ops.log)
            log.attach()
            server = Server(settings, clock=clock, log_to=log, observers=[observer], conf=conf)
            try:
                await server.bind()
                await server.listen()
                await server.open()
                yield Stage(conf=conf, settings=settings, server=server, sink_port=sink.port, arrived=arrived)
            finally:
                await server.stop()
    finally:
        await sink.close()
