"""From pages to figures: the text format, rates over intervals, and what a restart does to them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mqcd.core.samples import RATES, SPAN, Sample, Series, parse, view

PAGE = """\
# HELP mqcd_x_total Things.
# TYPE mqcd_x_total counter
mqcd_x_total 12.0
mqcd_y{area="held"} 1e+3
mqcd_z{site="a\\"b\\\\c\\nd",verdict="x"} 3
mqcd_z{site="e, f",verdict="x"} 4 1700000000
mqcd_odd{} 5
mqcd_none NaN
what is this
mqcd_bad x
"""


def test_a_page_is_read() -> None:
    found = parse(PAGE)
    assert found["mqcd_x_total"] == {(): 12.0}
    assert found["mqcd_y"] == {("held",): 1000.0}
    assert found["mqcd_z"] == {('a"b\\c\nd', "x"): 3.0, ("e, f", "x"): 4.0}
    assert found["mqcd_odd"] == {(): 5.0}
    assert set(found) == {"mqcd_x_total", "mqcd_y", "mqcd_z", "mqcd_odd", "mqcd_none"}


def sample(second: float, **metrics: float) -> Sample:
    series: dict[str, Series] = {name: {(): value} for name, value in metrics.items()}
    return Sample(taken=second, at=int(second * 1000), metrics={"mqcd_build_info": {("9",): 1.0}, **series})


def accepted(counts: Mapping[float, float]) -> list[Sample]:
    return [sample(second, mqcd_recipients_accepted_total=count) for second, count in counts.items()]


def test_the_journal_is_as_full_as_that_of_the_fullest_shard() -> None:
    pages = [(" 0.25", 0.25), ('{shard="0"} 0.5\nmqcd_journal_fill_ratio{shard="1"} 0.125', 0.5)]
    for page, fill in pages:
        shown = view([Sample(taken=1, at=1000, metrics=parse(f"mqcd_journal_fill_ratio{page}\n"))])
        assert shown.journal == fill


def test_one_sample_has_no_rates() -> None:
    shown = view(accepted({1: 100}))
    assert set(shown.rates.values()) == {None}
    assert shown.trends["accepted"] == []
    assert shown.version == "9"


def test_rates_are_means_of_the_last_intervals() -> None:
    samples = accepted({second: second**2 for second in range(10)})
    shown = view(samples)
    assert shown.rates["accepted"] == pytest.approx((9**2 - (9 - SPAN) ** 2) / SPAN)
    assert shown.rates["refused"] == 0
    assert shown.trends["accepted"] == [1, 3, 5, 7, 9, 11, 13, 15, 17]


def test_a_server_that_was_restarted_has_no_rate_below_nought() -> None:
    shown = view(accepted({1: 100, 2: 110, 3: 4}))
    assert shown.rates["accepted"] is None
    assert shown.trends["accepted"] == [10, 0]


def test_a_server_that_is_not_open_has_none_either() -> None:
    shown = view([sample(1), Sample(taken=2, at=2000, against="starting")])
    assert shown.against == "starting"
    assert set(shown.rates.values()) == {None}


def test_commits_are_those_of_the_last_intervals() -> None:
    def commits(second: float, count: float, total: float, frames: float) -> Sample:
        return sample(
            second,
            mqcd_commit_seconds_count=count,
            mqcd_commit_seconds_sum=total,
            mqcd_commit_group_size_count=count,
            mqcd_commit_group_size_sum=frames,
        )

    shown = view([commits(0, 10, 5.0, 10), commits(1, 30, 5.1, 90)])
    assert shown.commit_ms == pytest.approx(5.0)
    assert shown.group == pytest.approx(4.0)
    shown = view([commits(0, 10, 5.0, 10), commits(1, 10, 5.0, 10)])
    assert shown.commit_ms is shown.group is None


def test_every_rate_has_its_counter() -> None:
    from mqcd.ops.metrics.catalogue import CATALOGUE

    assert set(RATES.values()) <= {spec.name for spec in CATALOGUE}
