"""A real Prometheus server with a directory of its own, which scrapes what it is told."""

from __future__ import annotations

import json
import math
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.kit.ports import free_port
from tests.e2e.kit.waiting import DEADLINE, poll

JOB = "mqcd"


class Prometheus:
    """Scrapes each target twice a second and judges `rules` once a second."""

    def __init__(self, directory: Path, targets: Sequence[str], rules: Path) -> None:
        self._port = free_port()
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": list(targets)}]}],
        }
        # JSON is YAML, too.
        (directory / "prometheus.yml").write_text(json.dumps(config))
        self._log = (directory / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={directory / 'prometheus.yml'}",
             f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address=127.0.0.1:{self._port}"],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
        )  # fmt: skip
        poll(self._ready, "Prometheus' being ready")

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(DEADLINE)
        self._log.close()

    def _ready(self) -> bool:
        assert self._process.poll() is None, Path(self._log.name).read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=DEADLINE) as got:
                return bool(got.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **fields: str) -> Any:
        """The `data` of an answer of its API. A query that it does not understand fails the test."""
        query = urllib.parse.urlencode(fields)
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{query}"
        try:
            with urllib.request.urlopen(url, timeout=DEADLINE) as got:
                answer = json.load(got)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{path} {fields}: {error.read().decode()}") from error
        assert answer["status"] == "success"
        return answer["data"]

    def query(self, expr: str) -> dict[str, float]:
        """What an expression is now, by the labels of the series; without those that are not a number."""
        found = {}
        for each in self.ask("query", query=expr)["result"]:
            value = float(each["value"][1])
            if not math.isnan(value):
                labels = ",".join(f"{name}={value}" for name, value in sorted(each["metric"].items()))
                found[labels] = value
        return found
