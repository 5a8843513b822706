"""The servers that benches relay through: mqcd and Postfix, each from a directory of its own, on loopback.

Both are started with nothing in their queues, relay everything, and are stopped in good order when the
bench is done with them. Postfix needs root.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench import kit, turns

_WAIT_S = 120.0


def free_port() -> int:
    """A loopback port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(condition: object, what: str) -> None:
    """Wait for a foreign process: it gives no notice, so it is looked at every 5 ms."""
    assert callable(condition)
    end = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"gave up waiting for {what}")
        time.sleep(0.005)


def answers(port: int) -> bool:
    """Whether something greets on a port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as peer:
            return peer.recv(3) == b"220"
    except OSError:
        return False


def ready(port: int) -> bool:
    """Whether mqcd says on its ops port that its door is open."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


class Sink:
    """smtp-sink with its running count, on every loopback address."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._count = directory / "sink.count"
        with self._count.open("wb") as out:
            command = ["smtp-sink", "-u", "nobody", "-c", f"inet:0.0.0.0:{self.port}", "2000"]
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        until(lambda: answers(self.port), "smtp-sink")
        self._base = self.messages()

    def messages(self) -> int:
        """Messages so far."""
        found = re.findall(rb"mesg=(\d+)", self._count.read_bytes()[-200:])
        return int(found[-1]) if found else 0

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    port: int
    """Where it takes mail."""
    pid: int
    """Its process, or of many the one that the others are children of."""
    ops: int = 0
    """Port of its metrics."""
    alone: bool = True
    """Whether its children live as long as it does."""

    def peaks(self) -> list[int]:
        """The largest entry size so far of the server and its helper, octets; [] where there are many."""
        return kit.peak_memory(self.pid) if self.alone else []

    def spent(self) -> list[float]:
        """Processor time so far of the server and its helper, or of many processes together, seconds."""
        each = kit.processor_seconds(self.pid)
        return each if self.alone else [sum(each) + kit.ended_children_seconds(self.pid)]

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ops}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if re.match(rf"{name}[{{ ]", line))


Running = contextlib.AbstractContextManager[Server]
Routes = Mapping[str, str]
"""By recipient domain: the relay's address:port; "" = all other mail."""


@contextlib.contextmanager
def mqcd(
    directory: Path,
    routes: Routes,
    client: str = "",
    module: str = "mqcd",
    queue: str = "<shards>1</shards>",
    server: str = "",
    listener: str = "",
) -> Iterator[Server]:
    """Run mqcd with a relay for each route; `client`, `queue`, `server`, `listener`: XML for settings.

    `module` is what is run. It may write to the file that `turns.FILE` names in its environment.
    """
    port, ops = free_port(), free_port()
    config = directory / "mqcd.xml"
    relays = "".join(
        f'<relay address="{address}"' + (f' destdomains="{domain}"/>' if domain else "/>")
        for domain, address in routes.items()
    )
    config.write_text(
        f"""<mailserver><mta><queue>{queue}</queue>
        <submit><listeners><listener name="smtp" interface="127.0.0.1" port="{port}">{listener}
          <server><relay_clients>127.0.0.1</relay_clients>{server}</server></listener></listeners></submit>
        <deliver><client>{client}</client><relays>{relays}</relays></deliver>
        </mta><ops interface="127.0.0.1" port="{ops}"/></mailserver>"""
    )
    command = [sys.executable, "-m", module, "run", "-c", str(config), "--var", str(directory / "var")]
    surroundings = os.environ | {turns.FILE: str(directory / turns.FILE)}
    with (directory / "mqcd.log").open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, cwd=kit.ROOT, env=surroundings
        )
    try:
        until(lambda: ready(ops), "mqcd")
        yield Server(port, process.pid, ops)
    finally:
        process.terminate()
        process.wait()


MASTER = """
127.0.0.1:{port} inet n - n - {limit} smtpd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - {limit} smtp
relay unix - - n - {limit} smtp
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
tlsmgr unix - - n 1000? 1 tlsmgr
"""

MAIN = """
compatibility_level = 3.6
queue_directory = {base}/queue
data_directory = {base}/data
maillog_file = {base}/maillog
maillog_file_prefixes = {base}
mail_owner = postfix
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = postfix.bench.example
mydestination =
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
transport_maps = texthash:{base}/etc/transport
message_size_limit = 0
mailbox_size_limit = 0
smtpd_recipient_limit = 100000
default_destination_concurrency_limit = 100
initial_destination_concurrency = 20
smtpd_client_connection_count_limit = 0
smtpd_client_connection_rate_limit = 0
smtpd_peername_lookup = no
smtp_connection_cache_on_demand = yes
disable_dns_lookups = yes
in_flow_delay = 0
local_recipient_maps =
alias_maps =
"""


@contextlib.contextmanager
def postfix(directory: Path, routes: Routes, main: str = "") -> Iterator[Server]:
    """Postfix with a transport for each route, set for throughput; `main`: further lines of main.cf."""
    port = free_port()
    base = directory / "postfix"
    shutil.rmtree(base, ignore_errors=True)
    (base / "etc").mkdir(parents=True)
    (base / "queue").mkdir()
    (base / "data").mkdir()
    shutil.chown(base / "data", "postfix", "postfix")
    (base / "etc/main.cf").write_text(MAIN.format(base=base) + main)
    (base / "etc/transport").write_text("".join(map(_transport, routes.items())))
    (base / "etc/master.cf").write_text(MASTER.format(port=port, limit=100))
    run = ["postfix", "-c", str(base / "etc")]
    subprocess.run([*run, "start"], check=True, capture_output=True)
    try:
        until(lambda: answers(port), "Postfix")
        yield Server(port, int((base / "queue/pid/master.pid").read_text()), alone=False)
    finally:
        subprocess.run([*run, "stop"], check=True, capture_output=True)


def _transport(route: tuple[str, str]) -> str:
    """A line of the transport table."""
    domain, address = route
    host, _, port = address.rpartition(":")
    return f"{domain or '*'} smtp:[{host}]:{port}\n"
