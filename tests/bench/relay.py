"""Messages a second through mqcd and through Postfix as a relay, with one source and one sink.

    python tests/bench/relay.py [--messages 5000] [--sessions 20] [--octets 4096] [--rounds 3]

Needs root and Debian's `postfix` (its smtp-source and smtp-sink too). Both servers run from directories
of their own on loopback, in turn, in each round; medians are printed. "accepted" ends when the source
has its last 250, "end to end" when the sink has counted the last message. Refuses tmpfs, where a sync
costs nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_WAIT_S = 120.0


@dataclass(frozen=True)
class Load:
    """What is sent."""

    messages: int
    sessions: int
    octets: int


@dataclass(frozen=True)
class Rate:
    """Messages a second."""

    accepted: float
    end_to_end: float


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
    """smtp-sink with its running count."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._count = directory / "sink.count"
        with self._count.open("wb") as out:
            command = ["smtp-sink", "-u", "nobody", "-c", f"127.0.0.1:{self.port}", "2000"]
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


@contextlib.contextmanager
def mqcd(directory: Path, sink: int) -> Iterator[int]:
    """mqcd, relaying everything to the sink."""
    port, ops = free_port(), free_port()
    config = directory / "mqcd.xml"
    config.write_text(
        f"""<mailserver><mta>
        <submit><listeners><listener name="smtp" interface="127.0.0.1" port="{port}">
          <server><relay_clients>127.0.0.1</relay_clients></server></listener></listeners></submit>
        <deliver><relays><relay address="127.0.0.1:{sink}"/></relays></deliver>
        </mta><ops interface="127.0.0.1" port="{ops}"/></mailserver>"""
    )
    command = [sys.executable, "-m", "mqcd", "run", "-c", str(config), "--var", str(directory / "var")]
    with (directory / "mqcd.log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        until(lambda: ready(ops), "mqcd")
        yield port
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
relayhost = [127.0.0.1]:{sink}
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
def postfix(directory: Path, sink: int) -> Iterator[int]:
    """Postfix, relaying everything to the sink, set for throughput."""
    port = free_port()
    base = directory / "postfix"
    shutil.rmtree(base, ignore_errors=True)
    (base / "etc").mkdir(parents=True)
    (base / "queue").mkdir()
    (base / "data").mkdir()
    shutil.chown(base / "data", "postfix", "postfix")
    (base / "etc/main.cf").write_text(MAIN.format(base=base, sink=sink))
    (base / "etc/master.cf").write_text(MASTER.format(port=port, limit=100))
    run = ["postfix", "-c", str(base / "etc")]
    subprocess.run([*run, "start"], check=True, capture_output=True)
    try:
        until(lambda: answers(port), "Postfix")
        yield port
    finally:
        subprocess.run([*run, "stop"], check=True, capture_output=True)


def measure(port: int, sink: Sink, load: Load, *options: str) -> Rate:
    """One run of the source."""
    before = sink.messages()
    command = ["smtp-source", "-s", str(load.sessions), "-l", str(load.octets), "-m", str(load.messages)]
    addresses = ["-f", "sender@example.org", "-t", "recipient@example.com", f"127.0.0.1:{port}"]
    start = time.monotonic()
    subprocess.run([*command, *options, *addresses], check=True)
    accepted = time.monotonic() - start
    until(lambda: sink.messages() - before >= load.messages, f"{load.messages} messages at the sink")
    total = time.monotonic() - start
    return Rate(load.messages / accepted, load.messages / total)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--octets", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    load = Load(given.messages, given.sessions, given.octets)
    base = Path(tempfile.mkdtemp(prefix="mqcd-bench-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    base.chmod(0o755)
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(base)], check=True, capture_output=True, text=True)
    if kind.stdout.strip() == "tmpfs":
        raise SystemExit(f"{base} is on tmpfs; set TMPDIR to a disk")
    print(f"{load}, filesystem {kind.stdout.strip()}, {os.cpu_count()} processors, {given.rounds} rounds")
    rates: dict[tuple[str, str], list[Rate]] = {}
    try:
        for number in range(given.rounds):
            for name, server in (("mqcd", mqcd), ("postfix", postfix)):
                directory = base / f"{name}{number}"
                directory.mkdir()
                sink = Sink(directory)
                try:
                    with server(directory, sink.port) as port:
                        for how, options in (("each", ()), ("kept", ("-d",))):
                            rate = measure(port, sink, load, *options)
                            rates.setdefault((name, how), []).append(rate)
                            print(
                                f"  {name:8} {how}: {rate.accepted:6.0f} {rate.end_to_end:6.0f}", flush=True
                            )
                finally:
                    sink.stop()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(f"{'':18}{'accepted/s':>12}{'end to end/s':>14}")
    for how, text in (("each", "a connection each"), ("kept", "kept connections")):
        ends = {}
        for name in ("mqcd", "postfix"):
            accepted = statistics.median(rate.accepted for rate in rates[name, how])
            ends[name] = statistics.median(rate.end_to_end for rate in rates[name, how])
            print(f"{name:8} {text:18}{accepted:8.0f}{ends[name]:12.0f}")
        print(f"{'ratio':8} {text:18}{'':8}{ends['mqcd'] / ends['postfix']:12.1f}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
