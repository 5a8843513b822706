"""Every metric of the server: name, kind, labels and meaning.

Names are an interface: they may be added to, never renamed. docs/metrics.md has this table, as `table`
writes it (`python -m mqcd.ops.metrics.catalogue` prints it), and a test holds the two together.
"""

from __future__ import annotations

from enum import StrEnum

from mqcd.core.value import value


class Kind(StrEnum):
    """How a metric is to be read."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(StrEnum):
    """What the figures of several shards' processes are as those of one server."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    SAME = "same"
    """Each process has it of the whole server. While they differ, after a reload that is under way: the
    greatest."""
    FARTHEST = "farthest from 0"
    BY_SHARD = "by shard"
    """They are not merged: each has a label `shard`."""


SUM, MAX, MIN, SAME = Merge.SUM, Merge.MAX, Merge.MIN, Merge.SAME


@value
class Spec:
    """One metric."""

    name: str
    kind: Kind
    merge: Merge
    """Counters and histograms are always added: a rate of anything else means nothing."""
    meaning: str
    labels: tuple[str, ...] = ()
    """Names of its labels, in the order in which values of them are given."""


def _counter(name: str, meaning: str, *labels: str) -> Spec:
    return Spec(name=name, kind=Kind.COUNTER, merge=SUM, meaning=meaning, labels=labels)


def _gauge(name: str, merge: Merge, meaning: str, *labels: str) -> Spec:
    return Spec(name=name, kind=Kind.GAUGE, merge=merge, meaning=meaning, labels=labels)


def _histogram(name: str, meaning: str, *labels: str) -> Spec:
    return Spec(name=name, kind=Kind.HISTOGRAM, merge=SUM, meaning=meaning, labels=labels)


CATALOGUE = (
    _counter("mqcd_messages_accepted_total", "Messages accepted, reports among them."),
    _counter("mqcd_accepted_bytes_total", "Octets of the messages accepted."),
    _counter("mqcd_recipients_accepted_total", "Recipients accepted, those of reports among them."),
    _counter("mqcd_recipients_delivered_total", "Recipients accepted by the next hop."),
    _counter("mqcd_recipients_deferred_total", "Attempts that failed and will be repeated."),
    _counter("mqcd_recipients_bounced_total", "Recipients refused for good."),
    _counter("mqcd_recipients_expired_total", "Recipients that reached their age limit."),
    _counter("mqcd_attempts_total", "Attempts begun, one per recipient."),
    _counter("mqcd_reports_total", "Reports put into the queue."),
    _counter(
        "mqcd_reports_failed_total",
        "Recipients of reports that bounced or expired; these are not reported.",
    ),
    _counter("mqcd_bounces_reported_total", "Bounced or expired recipients named in a report."),
    _counter("mqcd_bounces_discarded_total", "Bounced or expired recipients without a report.", "reason"),
    _counter("mqcd_recipients_amended_total", "Recipients changed by operators' actions.", "action"),
    _counter("mqcd_outcome_unknown_total", "Attempts whose outcome a crash hid: possible duplicates."),
    _counter(
        "mqcd_possibly_delivered_total",
        "Attempts whose connection broke after the final dot: possible duplicates.",
    ),
    _counter("mqcd_refused_total", "Commands and messages refused at the door.", "reason"),
    _counter("mqcd_connections_total", "Connections opened to next hops."),
    _counter("mqcd_connections_failed_total", "Connections to next hops that could not be opened."),
    _histogram("mqcd_time_in_queue_seconds", "Time from acceptance to delivery, per recipient delivered."),
    _histogram("mqcd_attempt_duration_seconds", "Time from the start of an attempt to its verdict."),
    _gauge("mqcd_queue_recipients", SUM, "Recipients at rest or in flight.", "area"),
    _gauge("mqcd_queue_bytes", SUM, "Octets of their messages, counted once per recipient.", "area"),
    _gauge(
        "mqcd_oldest_recipient_age_seconds", MAX, "Time since the oldest was accepted; 0 when empty.", "area"
    ),
    _gauge("mqcd_lanes", SUM, "Lanes in use: with mail in the active set, with connections, or suspended."),
    _gauge("mqcd_destinations_suspended", SUM, "Lanes whose destination is dead and only probed."),
    _gauge(
        "mqcd_stuck_recipients", SUM, "Recipients that the watchdog finds stuck, as /v1/stuck lists them."
    ),
    _gauge(
        "mqcd_advice_pieces",
        SAME,
        "Pieces of advice in effect: suppressed recipients, shaped sites.",
        "kind",
    ),
    _gauge("mqcd_paused", MAX, "1 while an operator has paused a part: accept, deliver or report.", "part"),
    _counter("mqcd_feed_events_total", "Events that a webhook or the collector of traces has taken.", "feed"),
    _counter(
        "mqcd_feed_gaps_total", "How often event files were removed before a feed had sent them.", "feed"
    ),
    _gauge("mqcd_feed_failing_seconds", MAX, "For how long a feed has failed; 0 = it does not.", "feed"),
    _gauge("mqcd_rules", SAME, "Standing rules by what they do.", "action"),
    _histogram("mqcd_commit_seconds", "Time from the beginning of a group commit to its sync."),
    _histogram("mqcd_commit_group_size", "Frames made durable by one sync."),
    _counter("mqcd_syncs_total", "Syncs of the journal."),
    _gauge("mqcd_journal_fill_ratio", Merge.BY_SHARD, "Used share of the journal's ring, 0 to 1."),
    _histogram("mqcd_evacuation_seconds", "Time to move a sealed segment to clusters and spool."),
    _gauge("mqcd_spid_cache_entries", SUM, "Messages whose recipients are counted in memory."),
    _counter("mqcd_spid_cache_misses_total", "Finished recipients of messages that were not in that cache."),
    _gauge(
        "mqcd_reference_batch_entries", SUM, "Messages without a count that wait for a sweep of the spool."
    ),
    _histogram("mqcd_reference_scan_seconds", "Time of a sweep of the spool."),
    _gauge("mqcd_recovery_seconds", MAX, "Time from the last start until mail was accepted."),
    _counter("mqcd_quarantined_lines_total", "Damaged lines and stretches in quarantine."),
    _counter("mqcd_unreadable_frames_total", "Frames of the journal whose events are missing."),
    _counter("mqcd_event_files_removed_total", "Event files removed for their age or size."),
    _counter(
        "mqcd_events_left_out_total",
        "Refusals and connections missing from the event log: too many, or not writable.",
        "event",
    ),
    _counter("mqcd_log_lines_lost_total", "Lines of the log that could not be written."),
    _counter("mqcd_audit_lines_lost_total", "Lines of audit logs that could not be written."),
    _counter("mqcd_manifest_edits_dropped_total", "MANIFEST edits that the last start found cut off."),
    _counter("mqcd_helper_hung_total", "Helper processes killed because they hung."),
    _gauge("mqcd_idempotency_keys", SUM, "Idempotency keys that are remembered."),
    _counter("mqcd_idempotent_repeats_total", "Submissions that were repeats under an idempotency key."),
    _gauge(
        "mqcd_clock_leap_seconds",
        Merge.FARTHEST,
        "How far the clock has leapt; negative = backwards. While it is not 0 no mail expires.",
    ),
    _gauge("mqcd_disk_free_bytes", MIN, "Free octets of the file system below a root.", "root"),
    _gauge("mqcd_disk_free_inodes", MIN, "Free inodes of the file system below a root.", "root"),
    _counter("mqcd_listener_messages_total", "Messages accepted from clients.", "listener", "tls"),
    _counter("mqcd_listener_recipients_total", "Recipients accepted from clients.", "listener"),
    _histogram("mqcd_listener_message_size_bytes", "Sizes of the messages accepted.", "listener"),
    _counter(
        "mqcd_listener_refused_total",
        "Commands and messages refused at the door.",
        *("listener", "reason", "code"),
    ),
    _gauge("mqcd_listener_open_connections", SUM, "Clients connected.", "listener"),
    _counter("mqcd_zone_verdicts_total", "Ended attempts by verdict.", "zone", "verdict"),
    _counter("mqcd_zone_delivered_total", "Recipients delivered, by the TLS version used.", "zone", "tls"),
    _histogram("mqcd_zone_time_in_queue_seconds", "Time from acceptance to delivery.", "zone"),
    _gauge("mqcd_zone_open_connections", SUM, "Connections to next hops, open or being opened.", "zone"),
    _counter(
        "mqcd_replies_total",
        "Ended attempts by the reply's code and subject.",
        *("verdict", "code", "class"),
    ),
    _counter("mqcd_site_verdicts_total", "Ended attempts by verdict.", "site", "verdict"),
    _histogram(
        "mqcd_site_attempt_duration_seconds", "Time from the start of an attempt to its verdict.", "site"
    ),
    _counter("mqcd_site_connections_total", "Connections opened.", "site"),
    _counter("mqcd_site_connections_failed_total", "Connections that could not be opened.", "site"),
    _gauge("mqcd_site_open_connections", SUM, "Connections open or being opened.", "site"),
    _gauge("mqcd_site_waiting_recipients", SUM, "Recipients that wait in the active set.", "site"),
    _gauge(
        "mqcd_site_oldest_recipient_age_seconds",
        MAX,
        "Age of the oldest recipient that is being tried or was deferred; the ten worst sites.",
        "site",
    ),
    _gauge(
        "mqcd_ledger_imbalance_recipients",
        SUM,
        "Recipients accepted since the start that neither ended nor are in the queue. Must be 0.",
    ),
    _gauge("mqcd_loop_lag_seconds", MAX, "Worst delay of the event loop in the last ten seconds."),
    _gauge(
        "mqcd_store_info",
        SAME,
        "Always 1; the labels are the store's class and, yes or no, what it promises.",
        *("class", "synced", "atomic", "shared"),
    ),
    _gauge("mqcd_build_info", SAME, "Always 1; the label is the running version.", "version"),
)


def table() -> str:
    """The catalogue as docs/metrics.md has it (Markdown)."""
    rows = ["| name | kind | of shards | labels | meaning |", "|---|---|---|---|---|"]
    for spec in CATALOGUE:
        labels = "".join(f" `{label}`" for label in spec.labels)
        rows.append(f"| `{spec.name}` | {spec.kind.value} | {spec.merge.value} |{labels} | {spec.meaning} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(table(), end="")
