"""The configuration of a server under test, as what it differs in from a common one, and its XML."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

Values = Mapping[str, str | int]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Blocks by the names of their elements; what is not given is the default."""

    relays: Sequence[tuple[str, str]] = ()
    """Pairs of recipient domains ("" = all others) and next hop."""
    relay_attributes: str = ""
    """XML that stands in each relay's tag."""
    relay_elements: str = ""
    """XML that stands inside each relay."""
    queue: Values = dataclasses.field(default_factory=dict)
    shards: Sequence[tuple[str, str]] = ()
    """Own queue root and spool root of each shard; "" = none."""
    held: str = ""
    """The domains whose mail is held, as XML."""
    store: str = ""
    """The element of the store, as XML."""
    journal: Values = dataclasses.field(default_factory=dict)
    door: Values = dataclasses.field(default_factory=dict)
    door_elements: str = ""
    """XML that stands among them: elements with attributes."""
    listener_elements: str = ""
    """XML that stands beside them: the listener's TLS."""
    more_listeners: str = ""
    """Other listeners, as XML."""
    local: str = ""
    """What stands in the block of programs' mail, as XML."""
    deliver: Values = dataclasses.field(default_factory=dict)
    client: Values = dataclasses.field(default_factory=dict)
    client_elements: str = ""
    """XML that stands among them: elements with attributes."""
    dns: Values = dataclasses.field(default_factory=dict)
    ways: str = ""
    """Zones, destinations and senders, as XML."""
    report: Values = dataclasses.field(default_factory=dict)
    events: str = ""
    """What stands in the block of the event files, as XML."""
    ops: str = ""
    """What stands in the block of operation besides, as XML."""
    log_level: str = "info"
    smtp_port: int = 0
    ops_port: int = 0

    @property
    def processes(self) -> int:
        """Server processes, one for each shard."""
        asked = self.queue.get("shards", 1)
        return len(self.shards) or int(asked or min(len(os.sched_getaffinity(0)), 4))

    def _places(self) -> str:
        listed = "".join(
            f"<shard rootpath={quoteattr(queue)} spool={quoteattr(spool)}/>\n" for queue, spool in self.shards
        )
        return f"<shards>\n{listed}</shards>\n" if listed else ""

    def but(self, **changes: Any) -> Plan:
        """This plan with changes: mappings are added to, all else is replaced."""
        merged: dict[str, Any] = {}
        for name, value in changes.items():
            old = getattr(self, name)
            merged[name] = {**old, **value} if isinstance(value, dict) else value
        return dataclasses.replace(self, **merged)

    def xml(self) -> str:
        # Tests look at one process unless they say otherwise.
        queue: dict[str, str | int] = {} if self.shards else {"shards": 1}
        queue |= {"retry_delays": "1s", "retry_jitter": "0%", "minfree": "1M", "mininodes": 10, **self.queue}
        journal = {"segmentsize": "1M", "segments": 4, **self.journal}
        door = {"relay_clients": "127.0.0.1", **self.door}
        relays = "".join(
            f"<relay address={quoteattr(address)}"
            + (f" destdomains={quoteattr(domains)}" if domains else "")
            + f" {self.relay_attributes}>{self.relay_elements}</relay>\n"
            for domains, address in self.relays
        )
        dns = "".join(f" {name}={quoteattr(str(value))}" for name, value in self.dns.items())
        return f"""<mailserver>
<application><announcehost>mqcd.test</announcehost></application>
<mta>
<queue>
{_elements(queue)}{self._places()}<held>{self.held}</held>{self.store}<journal>
{_elements(journal)}</journal>
</queue>
<submit><listeners>
<listener name="in" interface="127.0.0.1" port="{self.smtp_port}">
{self.listener_elements}
<server>
{_elements(door)}{self.door_elements}</server>
</listener>
{self.more_listeners}</listeners><local>{self.local}</local></submit>
<deliver>
{_elements(self.deliver)}<client>
{_elements(self.client)}{self.client_elements}</client>
<relays>
{relays}</relays>
{self.ways}
<dns{dns}/>
</deliver>
<report>
{_elements(self.report)}</report>
</mta>
<ops interface="127.0.0.1" port="{self.ops_port}">
<node>node</node>
<log format="json" level="{self.log_level}"/>
<events>{self.events}</events>
{self.ops}
</ops>
</mailserver>
"""


def relay(port: int) -> Sequence[tuple[str, str]]:
    """Everything to one port on loopback."""
    return (("", f"127.0.0.1:{port}"),)


def _elements(values: Values) -> str:
    return "".join(f"<{name}>{escape(str(value))}</{name}>\n" for name, value in values.items())
