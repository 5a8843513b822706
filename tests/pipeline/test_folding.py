"""Recipients from their events, without Spark: whatever comes together, in whichever order."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from mqcd.core.events import TRANSITIONS, Verb
from mqcd.core.queueing.spid import format_spid, spid_at
from mqcd.pipeline.sources.schema import ARROW
from mqcd.pipeline.tables.folding import _COUNTS, EVENT, STATE, folded, of_events, spid_ms

T0 = 1_795_000_020_000
SPID = format_spid(spid_at(T0))


def events(*rows: dict[str, Any]) -> pa.Table:
    """Events of one recipient of node n1, a second apart, unless they say something else."""
    given = [
        {
            "node": "n1",
            "shard": 0,
            "spid": SPID,
            "qid": 1,
            "sequence": number,
            "at": (T0 + number * 1000) * 1000,
        }
        | row
        for number, row in enumerate(rows)
    ]
    return pa.Table.from_pylist(given, schema=pa.schema([ARROW.field(name) for name in EVENT]))


ACCEPTED = {
    "event": "accepted",
    "sender": "s@here.example",
    "recipient": "a@b.example",
    "size": 7,
    "tls": "x",
}
LIFE = (
    ACCEPTED,
    {"event": "attempted", "attempt": 1},
    {"event": "deferred", "attempt": 1, "code": 451, "reply": "later", "due": (T0 + 60_000) * 1000},
    {"event": "attempted", "attempt": 2},
    {"event": "outcome-unknown", "attempt": 2},
    {"event": "delivered", "attempt": 3, "code": 250, "sender": "other@here.example"},
)


def test_each_transition_is_counted_or_rests_with_the_queue() -> None:
    counted = {verb for verbs in _COUNTS.values() for verb in verbs}
    uncounted = {Verb.ATTEMPTED, Verb.HELD, Verb.RELEASED, Verb.RESTORED, Verb.REDIRECTED, Verb.RESCHEDULED}
    assert TRANSITIONS - counted == uncounted


def test_a_life_is_one_row() -> None:
    (row,) = folded(of_events(events(*LIFE))).to_pylist()
    assert (row["accepts"], row["delivered"], row["deferrals"], row["unknowns"], row["attempts"]) == (
        1,
        1,
        1,
        1,
        3,
    )
    assert (row["outcome"], row["open"], row["duplicate"], row["latency_ms"]) == (
        "delivered",
        False,
        True,
        5000,
    )
    # The envelope as it was accepted; of the last verdict also what it does not tell; the newest due time.
    assert (row["sender"], row["size"], row["code"], row["reply"], row["tls"]) == (
        "s@here.example",
        7,
        250,
        None,
        None,
    )
    assert row["due"].timestamp() * 1000 == T0 + 60_000
    assert (str(row["day"]), str(row["hour"])) == ("2026-11-18", "2026-11-18 11:00:00+00:00")


@pytest.mark.parametrize("cut", range(1, len(LIFE)))
def test_parts_of_a_life_make_the_same_row_in_any_order(cut: int) -> None:
    whole = of_events(events(*LIFE))
    parts = [whole.slice(0, cut), whole.slice(cut)]
    for order in itertools.permutations(parts):
        states = [folded(part).select(STATE.names) for part in order]
        assert folded(pa.concat_tables(states)).equals(folded(whole))


@pytest.mark.parametrize(
    ("life", "is_open"),
    [
        ((ACCEPTED,), True),
        ((ACCEPTED, {"event": "bounced"}), True),
        ((ACCEPTED, {"event": "bounced"}, {"event": "reported"}), False),
        ((ACCEPTED | {"sender": ""}, {"event": "bounced"}), False),
        ((ACCEPTED, {"event": "expired"}, {"event": "discarded"}), False),
        (({"event": "delivered"},), True),
    ],
)
def test_who_is_finished(life: tuple[dict[str, Any], ...], is_open: bool) -> None:
    assert folded(of_events(events(*life)))["open"].to_pylist() == [is_open]


_MIGRATED = {"event": "discarded", "reason": "migrated"}
_BOUNCED = {"event": "bounced"}


@pytest.mark.parametrize(
    ("life", "accepts", "is_open"),
    [
        ((ACCEPTED, _MIGRATED), 0, True),
        ((ACCEPTED, _MIGRATED, ACCEPTED | {"node": "n2"}), 1, True),
        ((ACCEPTED, _MIGRATED, ACCEPTED, {"event": "delivered"}), 1, False),
        ((ACCEPTED, _MIGRATED, ACCEPTED, {"event": "expired"}), 1, True),
        ((ACCEPTED, _BOUNCED, _MIGRATED | {"undone": "bounced"}), 0, True),
        ((ACCEPTED, _BOUNCED, _MIGRATED | {"undone": "bounced"}, ACCEPTED, _BOUNCED), 1, True),
    ],
)
def test_a_migration_takes_the_acceptance_back(
    life: tuple[dict[str, Any], ...], accepts: int, is_open: bool
) -> None:
    (row,) = folded(of_events(events(*life))).to_pylist()
    assert (row["accepts"], row["open"]) == (accepts, is_open)
    assert row["bounced"] == (accepts if _BOUNCED in life else 0)


_DELIVERED = {"event": "delivered"}
_REMOVED = {"event": "removed"}
_RESTORED = {"event": "restored", "undone": "removed"}


@pytest.mark.parametrize(
    ("life", "outcome", "latency_ms"),
    [
        ((ACCEPTED, _REMOVED), "removed", 1000),
        ((ACCEPTED, _REMOVED, _RESTORED), "queued", None),
        ((ACCEPTED, _REMOVED, _RESTORED, _DELIVERED), "delivered", 3000),
        ((ACCEPTED, _REMOVED, _RESTORED, _REMOVED), "removed", 3000),
        ((ACCEPTED, _BOUNCED, _MIGRATED | {"undone": "bounced"}), "queued", None),
        # The store that has it now may have taken it in before the other one lets it go.
        ((ACCEPTED, _BOUNCED, ACCEPTED, _BOUNCED, _MIGRATED | {"undone": "bounced"}), "bounced", 3000),
    ],
)
def test_an_end_that_is_taken_back_has_no_time(
    life: tuple[dict[str, Any], ...], outcome: str, latency_ms: int | None
) -> None:
    each = of_events(events(*life))
    whole = folded(each)
    (row,) = whole.to_pylist()
    ended = row["ended"] and row["ended"].timestamp() * 1000 - T0
    assert (row["outcome"], ended, row["latency_ms"]) == (outcome, latency_ms, latency_ms)
    for known in itertools.product((True, False), repeat=len(life)):
        parts = [each.filter(pa.array(known)), each.filter(pa.array([not one for one in known]))]
        states = [folded(part).select(STATE.names) for part in parts]
        assert folded(pa.concat_tables(states)).equals(whole)


_DOUBTED = {"event": "deferred", "possibly_delivered": True}
_CRASHED = {"event": "outcome-unknown"}


@pytest.mark.parametrize(
    ("life", "after_a_crash", "possible"),
    [
        ((ACCEPTED, _DELIVERED), False, False),
        ((ACCEPTED, {"event": "deferred"}, _DELIVERED), False, False),
        ((ACCEPTED, _DOUBTED), False, False),
        ((ACCEPTED, _DOUBTED, _DELIVERED), False, True),
        ((ACCEPTED, _CRASHED, _DELIVERED), True, False),
        ((ACCEPTED, _DOUBTED, _CRASHED, _DELIVERED), True, False),
        ((ACCEPTED, _DOUBTED, {"event": "bounced"}), False, False),
    ],
)
def test_who_may_have_mail_twice(
    life: tuple[dict[str, Any], ...], after_a_crash: bool, possible: bool
) -> None:
    (row,) = folded(of_events(events(*life))).to_pylist()
    assert (row["duplicate"], row["possible_duplicate"]) == (after_a_crash, possible)


def test_two_nodes_with_the_same_spid_are_two_recipients() -> None:
    rows = folded(
        of_events(events(ACCEPTED, ACCEPTED | {"node": "n2"}, {"event": "delivered", "node": "n2"}))
    )
    assert {row["node"]: row["outcome"] for row in rows.to_pylist()} == {"n1": "queued", "n2": "delivered"}


def test_a_node_may_get_another_name_while_it_has_mail() -> None:
    rows = folded(of_events(events(ACCEPTED, {"event": "delivered", "node": "renamed"})))
    assert [(row["node"], row["outcome"]) for row in rows.to_pylist()] == [("n1", "delivered")]
    # With two to choose from nobody can tell whose it is.
    rows = folded(
        of_events(events(ACCEPTED, ACCEPTED | {"node": "n2"}, {"event": "delivered", "node": "renamed"}))
    )
    assert sorted((row["node"], row["outcome"]) for row in rows.to_pylist()) == [
        ("n1", "queued"), ("n2", "queued"), ("renamed", "delivered"),
    ]  # fmt: skip


def test_events_without_a_recipient_tell_nothing() -> None:
    rows = events({"event": "refused", "spid": None, "qid": None}, {"event": "delivered", "qid": None})
    assert folded(of_events(rows)).num_rows == 0


def test_the_time_in_a_spid() -> None:
    late = (1 << 41) - 1
    spids = [format_spid(spid_at(T0) | 5), format_spid(spid_at(T0)).lower(), "no spid", "F" * 16]
    epoch = 1_577_836_800_000
    assert spid_ms(pa.chunked_array([spids])).to_pylist() == [T0, T0, epoch, epoch + late]


@pytest.mark.parametrize("lacks", ["reports", "removed", "deferrals"])
def test_an_uncounted_column_is_zero(lacks: str) -> None:
    """Else nobody could say whether such a recipient is finished, and no table would have him."""
    rows = of_events(events(ACCEPTED, {"event": "delivered", "attempt": 1}))
    older = rows.set_column(STATE.names.index(lacks), lacks, pa.nulls(rows.num_rows, pa.int64()))
    assert folded(older).to_pylist() == folded(rows).to_pylist()
