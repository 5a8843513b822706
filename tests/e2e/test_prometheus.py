"""What is shipped in conf/ for Prometheus and Grafana, with a real Prometheus that scrapes a live server."""

from __future__ import annotations

import itertools
import json
import re
import smtplib
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcd.ops.metrics.catalogue import CATALOGUE, Kind
from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.alarms import LOUD, promtool_test
from tests.e2e.kit.mail import Client
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.prometheus import JOB, Prometheus
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE, poll

CONF = Path(__file__).resolve().parents[2] / "conf"
ALERTS = CONF / "prometheus" / "alerts.yml"
DASHBOARD = CONF / "grafana" / "mqcd.json"

pytestmark = [pytest.mark.slow, pytest.mark.needs("prometheus", "promtool")]

FILLED = {"$__rate_interval": "10s", "$instance": ".*", "$site": ".*"}
"""What Grafana puts in the places of variables, with all values chosen."""


class Trickle:
    """Some mail to each domain, ten times a second, over and over; and a mistake each time."""

    def __init__(self, port: int, domains: list[str]) -> None:
        self._port = port
        self._domains = domains
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Trickle:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with smtplib.SMTP("127.0.0.1", self._port, local_hostname=mail.HELO, timeout=DEADLINE) as client:
            for number in itertools.count():
                for domain in self._domains:
                    to = [f"a{number}@{domain}", f"b{number}@{domain}"]
                    client.sendmail("sender@ok.test", to, mail.message(f"{number}-{domain}"))
                with Client(self._port) as bad:
                    bad.greet()
                    assert bad.ask("MAIL FROM:<no address").startswith("5")
                if self._ending.wait(0.1):
                    return


@pytest.fixture
def watched(
    tmp_path: Path, make_server: MakeServer, make_receiver: MakeReceiver
) -> Iterator[tuple[Server, Prometheus]]:
    """A server whose next hops take, put off, refuse and do not answer, scraped under load."""
    taking, other = make_receiver(), make_receiver("*@defer.test=450 4.2.1 later", "*=550 5.1.1 no such user")
    plan = Plan(
        relays=[
            ("ok.test", f"127.0.0.1:{taking.port}"),
            ("defer.test", f"127.0.0.1:{other.port}"),
            ("bounce.test", f"127.0.0.1:{other.port}"),
            ("dead.test", f"127.0.0.1:{free_port()}"),
        ],
        ways='<zones><zone name="bulk"><match domain="defer.test"/></zone></zones>',
        queue={"retry_delays": "3s"},
        journal={"seal_age": "1s", "evacuate_age": "2s"},
    )
    server = make_server(plan).start()
    with Trickle(server.port, ["ok.test", "defer.test", "bounce.test", "dead.test"]):
        prometheus = Prometheus(tmp_path, [f"127.0.0.1:{server.ports['ops']}"], ALERTS)
        try:
            yield server, prometheus
        finally:
            prometheus.close()
    assert server.stop() == 0


def expressions() -> dict[str, str]:
    """Every query of the dashboard, with its variables filled in, and where it stands."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = {note["expr"]: f"annotation {note['name']}" for note in dashboard["annotations"]["list"]}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            found[target["expr"]] = panel["title"]
    return {_fill(expr): place for expr, place in found.items()}


def _fill(expr: str) -> str:
    for name, value in FILLED.items():
        expr = expr.replace(name, value)
    assert "$" not in expr
    return expr


def test_every_query_and_rule_works_with_a_live_server(watched: tuple[Server, Prometheus]) -> None:
    server, prometheus = watched
    left = expressions()
    assert len(left) > 50

    def all_have_data() -> bool:
        for expr in [*left]:
            if prometheus.query(expr):
                del left[expr]
        return not left

    try:
        poll(all_have_data, "data for every query of the dashboard", seconds=2 * DEADLINE)
    except AssertionError:
        assert left == {}, "these give no data"
        raise

    # The books balance at every scrape of a server at work.
    for over in ("min_over_time", "max_over_time"):
        assert set(prometheus.query(f"{over}(mqcd_ledger_imbalance_recipients[5m])").values()) == {0.0}

    # No counter has gone back, as Prometheus sees it.
    for spec in CATALOGUE:
        if spec.kind is Kind.COUNTER:
            assert set(prometheus.query(f"resets({spec.name}[5m])").values()) <= {0.0}, spec.name

    [target] = prometheus.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    [group] = prometheus.ask("rules")["groups"]
    assert {rule["name"]: rule["health"] for rule in group["rules"]} == dict.fromkeys(LOUD, "ok")
    assert {rule["name"] for rule in group["rules"] if rule["state"] == "firing"} == set()

    # It has asked for OpenMetrics, where a counter's family is named without _total.
    told = prometheus.ask("targets/metadata", metric="mqcd_recipients_accepted")
    assert [each["type"] for each in told] == ["counter"]
    sites = prometheus.ask("label/site/values")
    assert len(sites) == 4
    assert "other" in sites

    page = server.page("/metrics")[1]
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=DEADLINE
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_shipped_configuration_is_one() -> None:
    conf = str(ALERTS.with_name("prometheus.yml"))
    done = subprocess.run(
        ["promtool", "check", "config", conf], capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(LOUD)} rules found" in done.stdout
    assert f"job_name: {JOB}\n" in ALERTS.with_name("prometheus.yml").read_text()


def test_each_alert_is_raised_when_it_should_be_and_only_then(tmp_path: Path) -> None:
    assert re.findall(r"- alert: (\w+)", ALERTS.read_text()) == [*LOUD]
    worlds = tmp_path / "worlds.yml"
    worlds.write_text(json.dumps(promtool_test(str(ALERTS))))
    done = subprocess.run(
        ["promtool", "test", "rules", str(worlds)], capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
