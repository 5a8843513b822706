"""The alert rules and the dashboard in conf/, held against the catalogue, the documents and Grafana's model.

That every rule is raised and every query has data is shown with a real Prometheus, in tests/e2e.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

from mqcd.cli.main import cli
from mqcd.ops.metrics.catalogue import CATALOGUE, Kind

ROOT = Path(__file__).parents[3]
ALERTS = (ROOT / "conf" / "prometheus" / "alerts.yml").read_text()
DASHBOARD: dict[str, Any] = json.loads((ROOT / "conf" / "grafana" / "mqcd.json").read_text())
OPERATIONS = "".join((ROOT / "docs" / name).read_text() for name in ("runbook.md", "operations.md"))

SUFFIXES = {Kind.HISTOGRAM: ("_bucket", "_sum", "_count")}
LABELS = {
    f"{spec.name}{suffix}": {*spec.labels, *(["le"] if suffix == "_bucket" else [])}
    for spec in CATALOGUE
    for suffix in SUFFIXES.get(spec.kind, ("",))
}
for name in ("start_time_seconds", "cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds"):
    LABELS[f"process_{name}"] = set()
LABELS["up"] = LABELS["ALERTS"] = set()
SELECTED = r"\b(?:mqcd_\w+|process_\w+|up|ALERTS)"
"""A metric's name, as a regular expression."""
OF_PROMETHEUS = {"job", "instance", "alertname", "alertstate"}


def rules() -> list[dict[str, str]]:
    """Name, expression, severity, section and annotations of each rule, as text."""
    found = []
    for text in re.split(r"\n +- alert: ", ALERTS)[1:]:
        rule = {"alert": text.split()[0]}
        rule["expr"] = text.split("expr:")[1].split("for:")[0].split("labels:")[0]
        labels = re.search(r'labels: \{severity: (\w+), section: "([^"]+)"\}', text)
        assert labels is not None, rule["alert"]
        rule["severity"], rule["section"] = labels.groups()
        for name in ("summary", "description", "action"):
            told = re.search(rf'^ +{name}: "(.+)"$', text, re.MULTILINE)
            assert told is not None, f"{rule['alert']} has no {name}"
            rule[name] = told[1]
        found.append(rule)
    return found


def names_in(expr: str) -> set[str]:
    """The metrics that an expression asks for."""
    return set(re.findall(rf"{SELECTED}\b", expr))


def labels_in(expr: str) -> set[str]:
    """The labels that it chooses or groups by."""
    chosen = re.findall(r"(\w+)(?:=~|!=|!~|=)\"", expr)
    grouped = re.findall(r"(?:by|on) \(([^)]*)\)", expr)
    return {*chosen, *(name.strip() for group in grouped for name in group.split(","))}


def check(expr: str) -> None:
    """Only figures and labels that there are."""
    names = names_in(expr)
    assert names, expr
    assert names <= LABELS.keys(), names - LABELS.keys()
    known = OF_PROMETHEUS.union(*(LABELS[name] for name in names))
    assert labels_in(expr) <= known, labels_in(expr) - known


# ---------------------------------------------------------------- alerts


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_what_there_is_and_says_what_to_do(rule: dict[str, str]) -> None:
    check(rule["expr"])
    assert rule["severity"] in ("critical", "warning", "info")
    assert re.search(rf"^## {re.escape(rule['section'])}$", OPERATIONS, re.MULTILINE), rule["section"]
    assert min(len(rule[name]) for name in ("summary", "description", "action")) > 15
    shown = set(re.findall(r"\$labels\.(\w+)", " ".join(rule.values())))
    assert shown <= OF_PROMETHEUS.union(*(LABELS[name] for name in names_in(rule["expr"])))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_commands_that_a_rule_recommends_exist(rule: dict[str, str]) -> None:
    for words, flags in re.findall(r"mqcd (queue \w+|explain|fsck)((?: --\w+(?: \w+)?)*)", rule["action"]):
        command: click.Command = cli
        for word in words.split():
            assert isinstance(command, click.Group)
            command = command.commands[word]
        known = {name for parameter in command.params for name in parameter.opts}
        assert set(re.findall(r"--\w+", flags)) <= known


def test_the_documented_alerts_are_the_shipped_ones() -> None:
    documented = re.findall(r"^\| `(Mqcd\w+)` \| (\w+) \| .+ \|$", OPERATIONS, re.MULTILINE)
    assert documented == [(rule["alert"], rule["severity"]) for rule in rules()]


# ---------------------------------------------------------------- the dashboard


def panels() -> list[dict[str, Any]]:
    """All that lie on it."""
    found: list[dict[str, Any]] = DASHBOARD["panels"]
    return found


def targets() -> list[tuple[str, str]]:
    """Query and legend of each."""
    return [
        (target["expr"], target["legendFormat"]) for panel in panels() for target in panel.get("targets", ())
    ]


def test_it_can_be_imported() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    assert (DASHBOARD["uid"], DASHBOARD["title"]) == ("mqcd", "mqcd")
    assert "id" not in DASHBOARD, "a number of the Grafana that it came from"
    numbers = [panel["id"] for panel in panels()]
    assert len(numbers) == len(set(numbers))


def test_every_panel_asks_the_data_source_that_is_chosen() -> None:
    by_name = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert (by_name["datasource"]["type"], by_name["datasource"]["query"]) == ("datasource", "prometheus")
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        if panel["type"] != "row":
            assert panel["datasource"] == chosen
            assert [target["datasource"] for target in panel["targets"]] == [chosen] * len(panel["targets"])
    for name in ("instance", "site"):
        assert by_name[name]["datasource"] == chosen
        check(re.sub(r"label_values\((.+), (\w+)\)", r"sum by (\2) (\1)", by_name[name]["query"]["query"]))


def test_panels_lie_side_by_side_without_gaps_between_rows() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        assert 0 <= at["x"] < at["x"] + at["w"] <= 24
        cells = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert not cells & taken, f"{panel['title']} lies over another"
        taken |= cells
    assert {y for _, y in taken} == set(range(max(y for _, y in taken) + 1))


def test_its_rows() -> None:
    rows = [panel["title"] for panel in panels() if panel["type"] == "row"]
    assert rows == ["At a glance", "Flow", "Queue by area", "Destinations", "Engine", "Disk"]


def test_each_panel_says_what_it_shows_and_in_which_unit() -> None:
    known = {"cps", "s", "bytes", "short", "percentunit", "none"}
    for panel in panels():
        if panel["type"] != "row":
            assert len(panel["description"]) > 10, panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"] in known
    titles = [(panel["title"], panel["gridPos"]["y"]) for panel in panels()]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize(("expr", "legend"), targets())
def test_a_query_asks_for_what_the_chosen_servers_have(expr: str, legend: str) -> None:
    check(expr)
    asked = re.findall(rf"{SELECTED}\{{", expr)
    assert expr.count('instance=~"$instance"') == len(asked)
    assert not re.search(rf"{SELECTED}(?![\w{{])", expr), "of all servers"
    shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
    grouped = {name for group in re.findall(r"by \(([^)]*)\)", expr) for name in group.split(", ")}
    raw = not re.search(r"\b(sum|max|min|count)\b ?(by)? ?\(", expr)
    assert shown <= (OF_PROMETHEUS.union(*(LABELS[name] for name in names_in(expr))) if raw else grouped)


def test_what_is_worth_an_alert_is_on_the_dashboard() -> None:
    shown = set().union(*(names_in(expr) for expr, _ in targets()))
    alarming = set().union(*(names_in(rule["expr"]) for rule in rules()))
    assert alarming - shown <= {"mqcd_refused_total"}, "the dashboard has it by listener"
