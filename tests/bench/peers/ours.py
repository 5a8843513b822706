"""mqcd, with default settings or a number of shards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request

import mqcd
from tests.bench import servers
from tests.bench.peers.peer import ROOT, Peer, Plan, Start

_XML = """\
<mailserver><mta><queue>{queue}</queue>
<submit><listeners><listener name="smtp" interface="127.0.0.1" port="{port}">
<server><relay_clients>127.0.0.1</relay_clients><maxrecips>0</maxrecips></server></listener></listeners></submit>
<deliver><relays><relay address="127.0.0.1:{sink}"/></relays></deliver>
</mta><ops interface="127.0.0.1" port="{ops}"/></mailserver>
"""
_SETTLE_S = 5.0


class Mqcd(Peer):
    """The server of this project."""

    promise = "content and recipients in a synced journal"

    def __init__(self, shards: int = 0) -> None:
        self.name = f"mqcd-{shards}" if shards else "mqcd"
        self._queue = f"<shards>{shards}</shards>" if shards else ""

    def install(self) -> None:
        """It is what runs this."""

    def version(self) -> str:
        """Of the package."""
        return mqcd.__version__

    def prepare(self, plan: Plan) -> Start:
        """One file."""
        (plan.directory / "mqcd.xml").write_text(
            _XML.format(queue=self._queue, port=plan.port, sink=plan.sink, ops=plan.ops)
        )
        return Start(self._command(plan, "run"), os.environ | {"PYTHONPATH": str(ROOT)})

    def _command(self, plan: Plan, word: str) -> list[str]:
        place = ["-c", str(plan.directory / "mqcd.xml"), "--var", str(plan.directory / "var")]
        return [sys.executable, "-m", "mqcd", word, *place]

    def ready(self, plan: Plan) -> bool:
        """As /readyz says."""
        return servers.ready(plan.ops)

    def waiting(self, plan: Plan, pid: int) -> int:
        """Recipients."""
        return int(self._metric(plan, "mqcd_queue_recipients"))

    def _metric(self, plan: Plan, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{plan.ops}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if re.match(rf"{name}[{{ ]", line))

    def ledger(self, plan: Plan, deferred: int) -> str:
        """Accepted recipients have ended or are in the queue, which holds the deferred ones and no others."""
        end = time.monotonic() + _SETTLE_S
        while True:
            imbalance = self._metric(plan, "mqcd_ledger_imbalance_recipients")
            waiting = self.waiting(plan, 0)
            if not imbalance and waiting == deferred:
                return ""
            if time.monotonic() > end:
                return f"ledger: imbalance {imbalance:.0f}, {waiting} waiting, {deferred} deferred"
            time.sleep(0.1)

    def audit(self, plan: Plan) -> str:
        """As `fsck` says."""
        done = subprocess.run(
            self._command(plan, "fsck"), cwd=ROOT, capture_output=True, text=True, check=False
        )
        return f"fsck: {done.stdout.strip()}" if done.returncode else ""
