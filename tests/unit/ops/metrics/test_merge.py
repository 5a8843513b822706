"""Figures of several server processes as those of one server."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mqcd.ops.metrics.catalogue import CATALOGUE, Kind, Merge, Spec
from mqcd.ops.metrics.merge import Merger

ONE = """\
# HELP mqcd_syncs_total Syncs.
# TYPE mqcd_syncs_total counter
mqcd_syncs_total 3.0
# HELP mqcd_queue_recipients Recipients.
# TYPE mqcd_queue_recipients gauge
mqcd_queue_recipients{area="incoming"} 5.0
# HELP mqcd_loop_lag_seconds Lag.
# TYPE mqcd_loop_lag_seconds gauge
mqcd_loop_lag_seconds 0.25
# HELP mqcd_disk_free_bytes Free.
# TYPE mqcd_disk_free_bytes gauge
mqcd_disk_free_bytes{root="queue"} 100.0
# HELP mqcd_journal_fill_ratio Fill.
# TYPE mqcd_journal_fill_ratio gauge
mqcd_journal_fill_ratio 0.5
# HELP mqcd_commit_seconds Commit.
# TYPE mqcd_commit_seconds histogram
mqcd_commit_seconds_bucket{le="1.0"} 2.0
mqcd_commit_seconds_bucket{le="+Inf"} 3.0
mqcd_commit_seconds_count 3.0
mqcd_commit_seconds_sum 4.5
"""


def figures(*expositions: str) -> dict[tuple[str, str], float]:
    return sums(Merger().merge(dict(enumerate(expositions))))


def sums(merged: bytes) -> dict[tuple[str, str], float]:
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(merged.decode())
        for sample in family.samples
    }


def test_one_stays_as_it_is() -> None:
    found = figures(ONE)
    assert found["mqcd_syncs_total", ""] == 3
    assert found["mqcd_queue_recipients", "incoming"] == 5


def test_counters_gauges_and_histograms_are_added() -> None:
    found = figures(ONE, ONE)
    assert found["mqcd_syncs_total", ""] == 6
    assert found["mqcd_queue_recipients", "incoming"] == 10
    assert found["mqcd_commit_seconds_bucket", "1.0"] == 4
    assert found["mqcd_commit_seconds_sum", ""] == 9


def test_what_cannot_be_added_is_the_worst_or_is_apart() -> None:
    other = ONE.replace(" 0.25", " 0.75").replace(" 100.0", " 70.0").replace("ratio 0.5", "ratio 0.1")
    found = figures(ONE, other)
    assert found["mqcd_loop_lag_seconds", ""] == 0.75
    assert found["mqcd_disk_free_bytes", "queue"] == 70
    assert found["mqcd_journal_fill_ratio", "0"] == 0.5
    assert found["mqcd_journal_fill_ratio", "1"] == 0.1


def test_an_information_is_the_same_of_all() -> None:
    info = f'{ONE}# TYPE mqcd_store_info gauge\nmqcd_store_info{{class="cluster"}} 1.0\n'
    assert figures(info, info)["mqcd_store_info", "cluster"] == 1


@pytest.mark.parametrize("spec", CATALOGUE, ids=lambda spec: spec.name)
def test_each_metric_is_merged_as_the_catalogue_says(spec: Spec) -> None:
    family = spec.name.removesuffix("_total")
    sample = f"{spec.name}_count" if spec.kind is Kind.HISTOGRAM else spec.name
    texts = [f"# TYPE {family} {spec.kind.value}\n{sample} {value}\n" for value in (2.0, -3.0)]
    expected = {
        Merge.SUM: {"": -1.0},
        Merge.MAX: {"": 2.0},
        Merge.MIN: {"": -3.0},
        Merge.SAME: {"": 2.0},
        Merge.FARTHEST: {"": -3.0},
        Merge.BY_SHARD: {"0": 2.0, "1": -3.0},
    }[spec.merge]
    found = figures(*texts)
    assert {labels: value for (name, labels), value in found.items() if name == sample} == expected


def test_a_label_of_one_alone_is_kept() -> None:
    other = ONE.replace('area="incoming"', 'area="deferred"')
    found = figures(ONE, other)
    assert found["mqcd_queue_recipients", "incoming"] == found["mqcd_queue_recipients", "deferred"] == 5


def started(at: int, text: str = ONE) -> str:
    return f"{text}# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {at}.0\n"


def test_counters_stay_when_a_process_is_started_again() -> None:
    merger = Merger()
    merger.merge({0: started(1), 1: started(2)})
    fresh = started(3, ONE.replace("total 3.0", "total 1.0").replace('{le="1.0"} 2.0', '{le="1.0"} 0.0'))
    found = sums(merger.merge({0: started(1), 1: fresh}))
    assert found["mqcd_syncs_total", ""] == 3 + 3 + 1
    assert found["mqcd_commit_seconds_bucket", "1.0"] == 2 + 2 + 0
    assert found["mqcd_queue_recipients", "incoming"] == 10
    again = sums(merger.merge({0: started(1), 1: fresh}))
    assert again == found


def test_counters_of_a_process_that_does_not_answer_stay() -> None:
    merger = Merger()
    merger.merge({0: started(1), 1: started(2)})
    found = sums(merger.merge({0: started(1)}))
    assert found["mqcd_syncs_total", ""] == 6
    assert found["mqcd_queue_recipients", "incoming"] == 5


def test_openmetrics_has_the_same_figures() -> None:
    merged = Merger().merge({0: ONE, 1: ONE}, open_metrics=True)
    assert merged.endswith(b"# EOF\n")
    assert b"mqcd_syncs_total 6.0\n" in merged
