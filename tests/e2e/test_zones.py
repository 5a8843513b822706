"""Zones: whose mail goes out from which of our addresses, under which name, and how fast."""

from __future__ import annotations

import json
from collections import Counter

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver

WAYS = """
<zones>
  <zone name="bulk" sources="127.0.0.2*3 | 127.0.0.3" helo="bulk.mqcd.test">
    <match header="X-Class: Bulk"/>
  </zone>
  <zone name="lists" sources="127.0.0.4" helo="lists.mqcd.test"><match sender="lists.test"/></zone>
  <zone name="away" sources="127.0.0.5"><match domain="*.away.test" listener="in"/></zone>
</zones>
"""
SINGLE = {"maxmessages": 1}
"""A connection for each message, so that own addresses take turns."""


def test_mail_leaves_from_the_addresses_of_its_zone(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(Plan(relays=relay(receiver.port), ways=WAYS, deliver=SINGLE)).start()
    bulk = b"x-class:\r\n\tBULK\r\n" + mail.message("bulk")
    for number in range(16):
        mail.send(server.port, bulk, f"b{number}@other.test")
    mail.send(server.port, mail.message("list"), "l@other.test", sender="news@lists.test")
    mail.send(server.port, mail.message("away"), "a@sub.away.test")
    mail.send(server.port, mail.message("plain"), "p@away.test")
    took = Counter(receiver.to(f"b{number}@other.test").peer.partition(":")[0] for number in range(16))
    assert set(took) == {"127.0.0.2", "127.0.0.3"}
    assert took["127.0.0.2"] == 12
    assert {receiver.to(f"b{number}@other.test").helo for number in range(16)} == {"bulk.mqcd.test"}
    listed, away, plain = (receiver.to(each) for each in ("l@other.test", "a@sub.away.test", "p@away.test"))
    assert (listed.peer.partition(":")[0], listed.helo) == ("127.0.0.4", "lists.mqcd.test")
    assert (away.peer.partition(":")[0], away.helo) == ("127.0.0.5", "mqcd.test")
    assert (plain.peer.partition(":")[0], plain.helo) == ("127.0.0.1", "mqcd.test")
    assert server.stop() == 0


def test_a_zone_by_a_header_is_kept_over_a_restart(make_server: MakeServer, receiver: Receiver) -> None:
    receiver.follow("*=450 4.2.1 not now")
    server = make_server(Plan(relays=relay(receiver.port), ways=WAYS)).start()
    mail.send(server.port, b"X-Class: bulk\r\n" + mail.message("kept"), "b@other.test")
    server.metric("mqcd_recipients_deferred_total", 1)
    assert server.stop() == 0
    receiver.follow()
    server.start()
    assert receiver.to("b@other.test").helo == "bulk.mqcd.test"
    assert server.stop() == 0


def test_a_rate_holds_mail_back_and_the_server_says_so(make_server: MakeServer, receiver: Receiver) -> None:
    ways = '<destinations><destination match="slow.test" rate="2/h"/></destinations>'
    relays = (("slow.test", f"127.0.0.1:{receiver.port}"), ("", f"127.0.0.1:{receiver.port}"))
    # A lane is listed while it has a connection, also where its mail waits outside.
    server = make_server(Plan(relays=relays, ways=ways, deliver={"maxidletime": "10m"})).start()
    for number in range(3):
        mail.send(server.port, mail.message(f"slow {number}"), f"s{number}@slow.test")
    for number in range(3):
        mail.send(server.port, mail.message(f"quick {number}"), f"q{number}@quick.test")
    for number in range(3):
        receiver.to(f"q{number}@quick.test")
    receiver.to("s0@slow.test")
    server.metric("mqcd_recipients_delivered_total", 4)
    lanes = json.loads(server.page("/v1/lanes")[1])
    [slow] = [lane for lane in lanes if lane["name"].endswith("/slow.test")]
    assert slow["rate_in_ms"] > 1_700_000
    assert len(server.queue_ls("--domain", "slow.test")) == 2
    assert server.stop() == 0
