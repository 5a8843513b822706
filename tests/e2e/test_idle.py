"""An idle server writes nothing: disks may sleep, and whoever looks sees no change."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import poll

IDLE_SECONDS = 4.0
"""Longer than all that comes by itself: sealing, evacuation, the log's flush, looks at advice and disks."""
QUICK = {"seal_age": "200ms", "evacuate_age": "300ms"}


def footprint(server: Server) -> Mapping[str, tuple[int, ...]]:
    """When each file and directory of the server was changed, and what its processes have written to disk."""
    found: dict[str, tuple[int, ...]] = {}
    for path in (server.var, *server.var.rglob("*")):
        status = os.stat(path)
        found[str(path)] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    for pid in (server.pid, server.helper()):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            name, _, count = line.partition(": ")
            # Calls (syscw) do not count: threads wake the loop by one.
            if name == "write_bytes":
                found[f"{pid} {name}"] = (int(count),)
    return found


def rest(server: Server) -> None:
    """Wait until the journal has been emptied, with nothing but its ages to bring that about."""
    poll(lambda: len(list((server.var / "events").glob("*.gz"))) >= 1, "the export")
    poll(lambda: list((server.var / "queue").rglob("*.mqc")), "the evacuation")


def test_a_server_with_nothing_to_do_writes_nothing(make_server: MakeServer, receiver: Receiver) -> None:
    receiver.follow("*@later.test=450 4.2.1 later")
    plan = Plan(relays=relay(receiver.port), journal=QUICK, queue={"retry_delays": "1h"})
    server = make_server(plan).start()
    mail.send(server.port, mail.message("a"), "a@ours.test")
    mail.send(server.port, mail.message("b"), "b@later.test")
    server.event("deferred")
    rest(server)
    # The connections' own event file comes a minute after them, or with the stop.
    assert server.stop() == 0
    server.start()
    moment = threading.Event()
    # A page that is asked for the first time may load code, and Python keeps what it has compiled.
    server.metrics()
    before = footprint(server)
    while not moment.wait(1) and (now := footprint(server)) != before:
        before = now
    lines = len(server.lines.all())
    moment.wait(IDLE_SECONDS)
    server.metrics()
    assert footprint(server) == before
    assert len(server.lines.all()) == lines
    assert server.stop() == 0
