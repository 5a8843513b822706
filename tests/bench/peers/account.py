"""What all rounds gave together: medians, spread, ratios against Postfix in one round; table and chart."""

from __future__ import annotations

import runpy
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.peers.peer import ROOT

YARDSTICK = "postfix"
Figures = Mapping[str, float]


@dataclass
class Result:
    """Of one peer in one scenario."""

    rounds: dict[int, Figures] = field(default_factory=dict)
    """By number of the round."""
    failed: str = ""
    syncs: float | None = None

    def median(self, name: str) -> float:
        """Of one figure."""
        return statistics.median(each[name] for each in self.rounds.values())

    def spread(self, name: str) -> tuple[float, float]:
        """Lowest and highest."""
        values = [each[name] for each in self.rounds.values()]
        return min(values), max(values)


Results = Mapping[str, Mapping[str, Result]]
"""By scenario and peer."""


def ratios(result: Result, yardstick: Result, name: str = "rate") -> list[float]:
    """Of the rounds that both have, in ascending order."""
    both = result.rounds.keys() & yardstick.rounds.keys()
    return sorted(result.rounds[number][name] / yardstick.rounds[number][name] for number in both)


def short(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def cell(result: Result, yardstick: Result | None) -> str:
    """Rate, its spread, and the median of the ratios."""
    if result.failed:
        return f"failed: {result.failed}"
    low, high = result.spread("rate")
    text = f"{short(result.median('rate'))} ({short(low)} to {short(high)})"
    of = ratios(result, yardstick) if yardstick is not None and yardstick is not result else []
    return f"{text}, {statistics.median(of):.2f} times" if of else text


def cost(result: Result) -> str:
    """Processor time a message, peak memory, syncs a message."""
    if result.failed:
        return "-"
    text = f"{result.median('cpu_ms'):.3g} ms, {result.median('pss_mb'):.0f} MB"
    return text if result.syncs is None else f"{text}, {result.syncs:.3g} syncs"


def table(results: Results, titles: Mapping[str, str], peers: Sequence[str], cells: str = "rate") -> str:
    """Markdown: a row a scenario, a column a peer."""
    shown = [peer for peer in peers if any(peer in found for found in results.values())]
    lines = ["| what | " + " | ".join(shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for name, found in results.items():
        yardstick = found.get(YARDSTICK)
        row = []
        for peer in shown:
            result = found.get(peer)
            if result is None or not (result.rounds or result.failed):
                row.append("")
            else:
                row.append(cell(result, yardstick) if cells == "rate" else cost(result))
        lines.append(f"| {titles[name]} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def efficiency(found: Mapping[str, Result]) -> str:
    """Of each number of shards: its rate, divided by the number of shards and the rate of one."""
    one = found.get("mqcd-1")
    parts = []
    for name, result in found.items():
        shards = int(name.removeprefix("mqcd-")) if name.startswith("mqcd-") else 1
        if one and shards > 1 and (of := ratios(result, one)):
            parts.append(f"{shards} shards {statistics.median(of) / shards:.2f}")
    return ", ".join(parts)


def bars(results: Results, titles: Mapping[str, str], peer: str = "mqcd") -> str:
    """Lines of a chart: a peer's rate as a multiple of the yardstick's, lowest and highest."""
    lines = []
    for name, found in results.items():
        if peer in found and YARDSTICK in found and (of := ratios(found[peer], found[YARDSTICK])):
            lines.append(f"{titles[name]} | {of[0]:.1f} | {of[-1]:.1f}")
    return "\n".join(lines)


def chart(results: Results, titles: Mapping[str, str], file: Path) -> None:
    """The chart as SVG, drawn as those of docs are, and its text beside it."""
    drawn = bars(results, titles)
    if not drawn:
        return
    head = "# mqcd's rate as a multiple of Postfix's in one round, lowest and highest: LABEL | LOW | HIGH"
    text = f"{head}\n{drawn}\n"
    drawing: dict[str, Any] = runpy.run_path(str(ROOT / "docs/drawings/draw.py"))
    file.write_text(drawing["bars"](text), encoding="utf-8")
    file.with_suffix(".txt").write_text(text, encoding="utf-8")
