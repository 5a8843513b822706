"""`mqcd run` as a real process with a configuration and a var directory of its own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from mqcd.net.control.client import Control
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.waiting import DEADLINE, Board, poll

ROOT = Path(__file__).resolve().parents[3]
STOP_SECONDS = 10
"""What a stop may take at most, by the server's own promise."""
Line = dict[str, Any]


class Server:
    """One server, started as often as wanted over the same directories."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.conf = directory / "mqcd.xml"
        self.var = directory / "var"
        self.lines: Board[Line] = Board()
        """The log lines of the run under way."""
        self.ports: dict[str, int] = {}
        self.descriptors = 0
        """The limit that the process starts under; 0 = that of the tests."""
        self.faults_expected: Callable[[Line], bool] = lambda line: False
        """Which lines of level error belong to the test; any other fails it."""
        self._earlier: list[Line] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.write(plan)

    def write(self, plan: Plan) -> None:
        self.plan = plan
        self.conf.write_text(plan.xml())

    # ------------------------------------------------------------ the process

    def start(self) -> Server:
        """Start and wait until it says that it is ready."""
        self.launch()
        self.events("ready", self.plan.processes)
        if not self.ports.get("ops"):
            self.event("listening", name="ops")
        return self

    def launch(self) -> None:
        self._earlier += self.lines.all()
        lines = self.lines = Board()
        self.ports = {}
        process = self._process = subprocess.Popen(
            [*self._limited(), *_MQCD, "run", "-c", str(self.conf), "--var", str(self.var)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._reader = threading.Thread(target=self._read, args=(process, lines), daemon=True)
        self._reader.start()

    def _limited(self) -> Sequence[str]:
        script = f'ulimit -n {self.descriptors}; exec "$@"'
        return ("sh", "-c", script, "sh") if self.descriptors else ()

    def _read(self, process: subprocess.Popen[str], lines: Board[Line]) -> None:
        if process.stderr is not None:
            for text in process.stderr:
                line = _parse(text)
                if line.get("event") == "listening":
                    self.ports[line["name"]] = line.get("port", 0)
                lines.put(line)
        lines.close()

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise AssertionError("the server was not started")
        return self._process

    @property
    def port(self) -> int:
        return self.ports["in"]

    def signal(self, number: signal.Signals) -> None:
        self._running.send_signal(number)

    def ended(self, seconds: float = DEADLINE) -> int:
        """The exit code, once it has one; all its lines have been read then."""
        code = self._running.wait(seconds)
        if self._reader is not None:
            self._reader.join(seconds)
        if self._running.stderr is not None:
            self._running.stderr.close()
        return code

    def stop(self) -> int:
        """SIGTERM; gives the exit code. Fails when that takes longer than is promised."""
        self.signal(signal.SIGTERM)
        return self.ended(STOP_SECONDS)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.ended()

    def helper(self, pid: int = 0) -> int:
        """Process id of the queue's helper: the server's, or of one server process of several shards."""
        parent = pid or self.pid
        return poll(lambda: next(filter(_is_helper, children(parent)), None), "the queue's helper process")

    def shards(self, count: int) -> list[int]:
        """Process ids of the shards' server processes that have a helper, once there are `count`."""

        def found() -> list[int] | None:
            pids = [pid for pid in children(self.pid) if any(map(_is_helper, children(pid)))]
            return pids if len(pids) == count else None

        return poll(found, f"{count} server processes with a helper")

    def discard(self) -> None:
        """End it in whichever way is left."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    # ------------------------------------------------------------ what it says

    def event(self, verb: str, *, after: int = 0, seconds: float = DEADLINE, **fields: object) -> Line:
        """The first log line of this event with these fields, now or later."""
        return self.events(verb, 1, after=after, seconds=seconds, **fields)[0]

    def events(
        self, verb: str, count: int, *, after: int = 0, seconds: float = DEADLINE, **fields: object
    ) -> list[Line]:
        wanted = {"event": verb, **fields}
        return self.lines.several(
            lambda line: wanted.items() <= line.items(),
            count,
            f"event {wanted}",
            after=after,
            seconds=seconds,
        )

    def seen(self, verb: str) -> list[Line]:
        """The lines of this event until now, in this run."""
        return [line for line in self.lines.all() if line.get("event") == verb]

    def faults(self) -> list[Line]:
        """Lines in all runs that tell of an error, save those that the test expects."""
        return [
            line
            for line in [*self._earlier, *self.lines.all()]
            if line.get("level") in (None, "error", "critical") and not self.faults_expected(line)
        ]

    def left_something(self) -> bool:
        """Whether a limit ended a part of the last stop: it logs that the next start recovers the rest."""
        return any("did not stop in time" in str(line.get("msg")) for line in self.lines.all())

    def history(self, count: int = 60) -> str:
        """The last lines of the log, for a test that failed."""
        return "\n".join(json.dumps(line) for line in [*self._earlier, *self.lines.all()][-count:])

    # ------------------------------------------------------------ what it shows

    def page(self, path: str) -> tuple[int, str]:
        """Status and body of a page: of the control socket below /v1, else of the ops listener."""
        if path.startswith("/v1/"):
            return self.control.get(path, DEADLINE)
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.ports['ops']}{path}", timeout=DEADLINE
            ) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def status_as(self, host: str, path: str) -> int:
        """The status of a page of ops that a browser gets which takes `host` for the server's name."""
        with socket.create_connection(("127.0.0.1", self.ports["ops"]), timeout=DEADLINE) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\r\n".encode())
            with client.makefile("rb") as answer:
                return int(answer.readline().split()[1])

    @property
    def control(self) -> Control:
        return Control(self.var / "control.sock")

    def metrics(self) -> dict[str, float]:
        """Every figure, as `name` or `name{label}`."""
        figures = {}
        for family in text_string_to_metric_families(self.page("/metrics")[1]):
            for sample in family.samples:
                label = ",".join(sample.labels.values())
                figures[f"{sample.name}{{{label}}}" if label else sample.name] = sample.value
        return figures

    def metric(self, name: str, value: float) -> None:
        """Wait until a figure has this value."""
        poll(lambda: self.metrics().get(name, 0) == value, f"{name} being {value}")

    def queue_ls(self, *arguments: str) -> list[Line]:
        """`mqcd queue ls --json`, beside the running server."""
        return [json.loads(line) for line in self.command("queue", "ls", "--json", *arguments).splitlines()]

    def command(self, *words: str, code: int = 0) -> str:
        """Another command of mqcd with this server's configuration, which ends with this code; gives what it
        writes."""
        done = subprocess.run(
            [*_MQCD, *words, "-c", str(self.conf), "--var", str(self.var)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    def peak_memory(self) -> int:
        """The most memory that the process had at any time, octets."""
        return _status_kib(self.pid, "VmHWM") * 1024


_MQCD: Sequence[str] = (sys.executable, "-m", "mqcd")


def children(pid: int) -> list[int]:
    """Process ids of a process's children; none when it is gone."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _is_helper(pid: int) -> bool:
    try:
        return b"mqcd.queue.helper.helper" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


def _parse(text: str) -> Line:
    if not text.endswith("\n"):
        # A server that is killed may be in the middle of a line.
        return {"torn": text, "level": "info"}
    try:
        # The next server goes on where the one that was killed in the middle of a line stopped.
        line = json.loads(text[max(text.rfind('{"at":'), 0) :])
    except ValueError:
        line = None
    return line if isinstance(line, dict) else {"raw": text.rstrip("\n")}


def _status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise AssertionError(f"no {field} of process {pid}")
