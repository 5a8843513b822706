"""Worlds that an alert rule is to speak up in, and those in which it must not, as Prometheus' series.

A world is a healthy server for an hour and a half, looked at each minute, with some series in another state.
`LOUD` are worlds by the one alert that each must raise; `QUIET` are those close to them that must raise none.
Values are in promtool's notation: start, step, how many more.
"""

from __future__ import annotations

from collections.abc import Mapping

WORLD = Mapping[str, str]
LOOK = 98
"""Minutes after the beginning."""
MINUTES = LOOK + 2
SERVER = 'job="mqcd",instance="mx1:9125"'

GIB = 1 << 30


def always(value: float) -> str:
    """One value all the time."""
    return f"{value}+0x{MINUTES}"


def grows(by: float, start: float = 0) -> str:
    """So much more each minute."""
    return f"{start}{by:+f}x{MINUTES}"


def late(before: float, after: float, minutes: int) -> str:
    """One value until so many minutes before the look, then another; each is repeated."""
    first = LOOK - minutes
    return f"{before}+0x{first} {after}+0x{MINUTES - first}"


def series(name: str, **labels: str) -> str:
    """The name of a series of the server."""
    more = "".join(f',{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{SERVER}{more}}}"


def _verdicts(site: str, delivered: float, deferred: float) -> dict[str, str]:
    return {
        series("mqcd_site_verdicts_total", site=site, verdict="delivered"): grows(delivered),
        series("mqcd_site_verdicts_total", site=site, verdict="deferred"): grows(deferred),
    }


def _commits(quick: float, slow: float) -> dict[str, str]:
    return {
        series("mqcd_commit_seconds_bucket", le="0.25"): grows(quick),
        series("mqcd_commit_seconds_bucket", le="1.0"): grows(quick + slow),
        series("mqcd_commit_seconds_bucket", le="+Inf"): grows(quick + slow),
    }


HEALTHY: WORLD = {
    series("up"): always(1),
    series("process_start_time_seconds"): always(0),
    series("mqcd_loop_lag_seconds"): always(0.01),
    series("mqcd_stuck_recipients"): always(0),
    series("mqcd_oldest_recipient_age_seconds", area="incoming"): always(2),
    series("mqcd_oldest_recipient_age_seconds", area="deferred"): always(7 * 3600),
    series("mqcd_oldest_recipient_age_seconds", area="bounces"): always(80 * 3600),
    series("mqcd_site_oldest_recipient_age_seconds", site="a.example"): always(600),
    series("mqcd_queue_recipients", area="bounces"): "0 3 " * (MINUTES // 2),
    **_verdicts("a.example", delivered=100, deferred=10),
    series("mqcd_recipients_delivered_total"): grows(100),
    series("mqcd_recipients_deferred_total"): grows(40),
    series("mqcd_recipients_bounced_total"): grows(3),
    series("mqcd_recipients_expired_total"): grows(1),
    series("mqcd_destinations_suspended"): always(15),
    series("mqcd_lanes"): always(20),
    series("mqcd_ledger_imbalance_recipients"): always(0),
    series("mqcd_outcome_unknown_total"): always(0),
    series("mqcd_possibly_delivered_total"): grows(0.1),
    series("mqcd_quarantined_lines_total"): always(0),
    series("mqcd_audit_lines_lost_total"): always(0),
    series("mqcd_log_lines_lost_total"): always(3),
    series("mqcd_feed_failing_seconds", feed="crm"): always(1700),
    series("mqcd_clock_leap_seconds"): always(0),
    series("mqcd_disk_free_bytes", root="queue"): always(100 * GIB),
    series("mqcd_disk_free_inodes", root="queue"): always(10**6),
    series("mqcd_disk_free_inodes", root="spool"): always(0),
    series("mqcd_refused_total", reason="relay"): grows(5),
    series("mqcd_refused_total", reason="store"): always(4),
    **_commits(quick=1000, slow=5),
    series("mqcd_journal_fill_ratio"): always(0.5),
}

YOUNG = always(LOOK * 60 - 1800)
"""A process that was started half an hour before the look."""

LOUD: Mapping[str, WORLD] = {
    "MqcdDown": {series("up"): late(1, 0, 3)},
    "MqcdRestarts": {series("process_start_time_seconds"): grows(60)},
    "MqcdLoopLate": {series("mqcd_loop_lag_seconds"): late(0.01, 1.5, 6)},
    "MqcdStuckMail": {series("mqcd_stuck_recipients"): late(0, 3, 6)},
    "MqcdNewMailWaits": {series("mqcd_oldest_recipient_age_seconds", area="incoming"): late(2, 1000, 6)},
    "MqcdOldMail": {series("mqcd_site_oldest_recipient_age_seconds", site="a.example"): late(0, 14_401, 16)},
    "MqcdOldestDeferred": {
        series("mqcd_oldest_recipient_age_seconds", area="deferred"): late(0, 60 * 3600 + 1, 16)
    },
    "MqcdBouncesNotReported": {series("mqcd_queue_recipients", area="bounces"): late(0, 1, 66)},
    "MqcdSiteDefers": _verdicts("a.example", delivered=10, deferred=11),
    "MqcdManyDefer": {series("mqcd_recipients_deferred_total"): grows(120)},
    "MqcdDestinationsDead": {
        series("mqcd_destinations_suspended"): late(0, 21, 11),
        series("mqcd_lanes"): always(40),
    },
    "MqcdLedgerImbalance": {series("mqcd_ledger_imbalance_recipients"): late(0, -1, 2)},
    "MqcdOutcomeUnknown": {
        series("process_start_time_seconds"): YOUNG,
        series("mqcd_outcome_unknown_total"): always(2),
    },
    "MqcdPossiblyDelivered": {series("mqcd_possibly_delivered_total"): grows(0.5)},
    "MqcdQuarantinedLines": {series("mqcd_quarantined_lines_total"): late(0, 1, 5)},
    "MqcdLinesLost": {series("mqcd_audit_lines_lost_total"): late(0, 7, 5)},
    "MqcdFeedFails": {series("mqcd_feed_failing_seconds", feed="crm"): late(0, 1801, 6)},
    "MqcdClockLeap": {series("mqcd_clock_leap_seconds"): late(0, -90, 6)},
    "MqcdDiskLow": {series("mqcd_disk_free_bytes", root="queue"): always(GIB - 1)},
    "MqcdInodesLow": {series("mqcd_disk_free_inodes", root="queue"): always(39_999)},
    "MqcdDiskFills": {series("mqcd_disk_free_bytes", root="queue"): grows(-GIB / 6, 40 * GIB)},
    "MqcdRefusesMail": {series("mqcd_refused_total", reason="store"): grows(1)},
    "MqcdCommitsSlow": _commits(quick=1000, slow=20),
    "MqcdJournalFills": {series("mqcd_journal_fill_ratio"): late(0.5, 0.75, 6)},
}

QUIET: Mapping[str, WORLD] = {
    "a start": {series("up"): late(0, 1, LOOK - 1), series("process_start_time_seconds"): always(60)},
    "a scrape that failed": {series("up"): late(1, 0, 1)},
    "two restarts": {series("process_start_time_seconds"): f"0+0x{LOOK - 20} 4700+0x10 5300+0x{MINUTES}"},
    "a server that was started long after its crash was told": {
        series("mqcd_outcome_unknown_total"): always(2)
    },
    "a small site that defers all": _verdicts("a.example", delivered=0, deferred=3),
    "a site that takes half": _verdicts("a.example", delivered=10, deferred=10),
    "few attempts, most of them deferred": {
        series("mqcd_recipients_delivered_total"): grows(1),
        series("mqcd_recipients_deferred_total"): grows(30),
    },
    "a leap that was mended": {series("mqcd_clock_leap_seconds"): late(0, -90, 3)},
    "a full journal that was emptied": {series("mqcd_journal_fill_ratio"): late(0.5, 1, 3)},
    "many commits that take long": _commits(quick=1000, slow=9),
    "a disk that fills slowly": {series("mqcd_disk_free_bytes", root="queue"): grows(-GIB / 200, 40 * GIB)},
    "a large disk that takes a backup": {
        series("mqcd_disk_free_bytes", root="queue"): grows(-GIB, 500 * GIB)
    },
}


def promtool_test(rules: str) -> dict[str, object]:
    """What `promtool test rules` is to be given: YAML, of which JSON is a part."""
    worlds = {**{alert: (world, [alert]) for alert, world in LOUD.items()}}
    quiet: dict[str, tuple[WORLD, list[str]]] = {"a healthy server": ({}, [])}
    quiet |= {name: (world, []) for name, world in QUIET.items()}
    return {
        "rule_files": [rules],
        "evaluation_interval": "1m",
        "tests": [_test(name, world, raised) for name, (world, raised) in (worlds | quiet).items()],
    }


def _test(name: str, world: WORLD, raised: list[str]) -> dict[str, object]:
    inputs = {**HEALTHY, **world}
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in inputs.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{LOOK}m",
                "exp_samples": [{"labels": f'{{alertname="{each}"}}', "value": 1} for each in raised],
            }
        ],
    }
