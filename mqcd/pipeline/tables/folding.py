"""What the events of a recipient amount to: rows of one shape, folded into one. Pure, on Arrow tables.

An event has some columns of a recipient, a row of the table `recipients` has others: both have the
shape of `STATE`, and `folded` makes of any number of them one row for each recipient. So a batch adds to
what was known without reading the old events again, in whichever order files come.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqcd.core.events import ATTEMPT_ENDS, FAILURES, LIFE_ENDS, MIGRATED, Verb
from mqcd.core.queueing.spid import EPOCH_MS
from mqcd.pipeline.sources.schema import ARROW, TIME

KEY = ("node", "spid", "qid")
"""What names a recipient. A SPID is its node's own: two with the same shard number may make the same."""
LIFE = ("spid", "qid")
"""What its events share also when its node is given another name meanwhile."""
ENDS = tuple(verb.value for verb in LIFE_ENDS)
"""Verbs. One that `undone` of a later event names is taken back."""
_COUNTS: dict[str, tuple[str, ...]] = {
    "accepts": (Verb.ACCEPTED,),
    **{verb: (verb,) for verb in ENDS},
    "deferrals": (Verb.DEFERRED,),
    "unknowns": (Verb.OUTCOME_UNKNOWN,),
    "reports": (Verb.REPORTED, Verb.DISCARDED),
}
_LEAST = ("accepted", "first_attempt", "unknown_sequence", "doubt_sequence")
_GREATEST = ("shard", "attempts", "last_end", "last_event", "delivered_sequence")
_NEWEST: dict[str, tuple[str, ...]] = {
    "envelope_sequence": ("sender", "recipient", "domain", "size", "origin", "listener", "client", "user"),
    "last_sequence": (
        "last", "destination", "site", "zone", "remote_host", "remote_addr", "tls", "code", "status",
        "reply", "phase", "class",
    ),
    "due_sequence": ("due",),
}  # fmt: skip
"""Columns that are those of one event, and the column that says of which: the greatest counts."""
_ACCEPTED_SEQUENCE = 1 << 62
"""Stands for the sequence of an acceptance in `envelope_sequence`: it has the best envelope."""

_AT, _NUMBER, _TEXT = TIME, pa.int64(), pa.string()
_OTHER = {"shard": pa.int32(), "attempts": pa.int32(), "last": _TEXT}


def _kind(name: str) -> pa.DataType:
    if name in _COUNTS or name.endswith("_sequence"):
        return _NUMBER
    if name in ("accepted", "first_attempt", "last_end", "last_event"):
        return _AT
    return _OTHER.get(name) or ARROW.field(name).type


_newest = [column for sequence, names in _NEWEST.items() for column in (sequence, *names)]
STATE = pa.schema([(name, _kind(name)) for name in (*KEY, *_COUNTS, *_LEAST, *_GREATEST, *_newest)])
"""The columns that are folded.

A new column of a recipient:

* a number of events goes into `_COUNTS`; where not all events of its verbs count, how many do not into
  `taken_back` in `of_events`, and fields that this reads into `EVENT`;
* the least or greatest value over all events into `_LEAST` or `_GREATEST`; what it is for one event, into
  `of_events`, and the event's fields that this reads, into `EVENT`;
* a field of the newest event that has it into `_NEWEST`, by the event's name for it: of the envelope
  under `envelope_sequence`, where an acceptance is the newest; of other events, as `due`, beside
  a sequence of its own that `of_events` makes; by another name, where `of_events` makes the value, too, and
  the name is left out of `EVENT` as `last` is;
* a field of the first attempt into `_LEAST`, and into `of_events` where `attempt` is 1 and the verb one of
  ATTEMPT_ENDS: of other events `tls`, say, is the client's. It is null where attempt 1 became
  outcome-unknown, or the mail was imported after attempts;
* a field of the oldest of several events (the least value is another) into `_NEWEST`, by another name, beside
  a sequence of its own that `of_events` negates.

`_kind` has the type: that of the event's field of this name, but for counts, sequences and times; `_OTHER`
has those that no event has. What follows from other columns goes into `RECIPIENT` and `_derived`.
"""
RECIPIENT = pa.schema(
    [
        *STATE,
        ("outcome", _TEXT),
        ("ended", _AT),
        ("hour", _AT),
        ("latency_ms", _NUMBER),
        ("duplicate", pa.bool_()),
        ("possible_duplicate", pa.bool_()),
        ("open", pa.bool_()),
        ("day", pa.date32()),
    ]
)
"""Those of the table; the last ones follow from the others."""
EVENT = [
    "node", "shard", "sequence", "event", "at", "spid", "qid", "attempt", "possibly_delivered", "undone",
    "reason",
    *(name for names in _NEWEST.values() for name in names if name != "last"),
]  # fmt: skip
"""Columns of an event about a recipient."""
_HOUR_US, _DAY_MS = 3_600_000_000, 86_400_000


def of_events(events: pa.Table) -> pa.Table:
    """The state that each event about a recipient gives it, as STATE."""
    selected = events.select(EVENT)
    if selected["spid"].null_count or selected["qid"].null_count:
        selected = selected.filter(pc.and_(pc.is_valid(selected["spid"]), pc.is_valid(selected["qid"])))
    selected = selected.combine_chunks()
    sequence, at = selected["sequence"], selected["at"]
    # Verbs are few: each is looked at once, and each row by its number.
    happened = selected["event"].combine_chunks().dictionary_encode()

    def when(condition: pa.Array, value: object) -> pa.Array:
        return pc.if_else(condition, value, None)

    def verb(*wanted: str) -> pa.Array:
        return pc.is_in(happened.dictionary, value_set=pa.array(map(str, wanted))).take(happened.indices)

    accepted = verb(Verb.ACCEPTED)
    moved = pc.fill_null(pc.equal(selected["reason"], MIGRATED), False)
    migrated = pc.and_(verb(Verb.DISCARDED), moved).cast(_NUMBER)
    columns = {
        "accepted": when(accepted, at),
        "first_attempt": when(verb(Verb.ATTEMPTED), at),
        "last_end": when(verb(*ENDS), at),
        "unknown_sequence": when(verb(Verb.OUTCOME_UNKNOWN), sequence),
        "doubt_sequence": when(pc.fill_null(selected["possibly_delivered"], False), sequence),
        "attempts": pc.fill_null(selected["attempt"], 0),
        "last_event": at,
        "delivered_sequence": when(verb(Verb.DELIVERED), sequence),
        # An event without a sender gives nothing of the envelope.
        "envelope_sequence": when(
            pc.is_valid(selected["sender"]), pc.if_else(accepted, pa.scalar(_ACCEPTED_SEQUENCE), sequence)
        ),
        "last_sequence": when(verb(*ATTEMPT_ENDS), sequence),
        "last": selected["event"],
        "due_sequence": when(pc.is_valid(selected["due"]), sequence),
    }
    taken_back = {"accepts": migrated, "reports": migrated}
    for end in (*FAILURES, Verb.REMOVED):
        taken_back[end.value] = pc.fill_null(pc.equal(selected["undone"], end.value), False).cast(_NUMBER)
    for name, counted in _COUNTS.items():
        number = verb(*counted).cast(_NUMBER)
        columns[name] = pc.subtract(number, taken_back[name]) if name in taken_back else number
    chosen = [columns[name] if name in columns else selected[name] for name in STATE.names]
    return pa.table(chosen, names=STATE.names).cast(STATE)


def folded(rows: pa.Table) -> pa.Table:
    """One row for each recipient, as RECIPIENT, of rows that hold STATE.

    Events under another node's name than the acceptance are that recipient's if there is no other with its
    SPID and QID: the node was given a new name while mail was in its queue.
    """
    once = _fold(rows.select(STATE.names).cast(STATE).combine_chunks())
    strangers = pc.equal(once["accepts"], 0)
    if pc.any(strangers).as_py():
        once = _fold(_adopted(once, strangers))
    return _derived(once)


def _fold(rows: pa.Table) -> pa.Table:
    """One row for each KEY. An example, of some columns of two rows of one recipient:

    | accepted | attempts | delivered | last_sequence | last |
    |---|---|---|---|---|
    | 10:00 | 1 | 0 | 7 | deferred |
    | | 2 | 1 | 9 | delivered |
    | 10:00 | 2 | 1 | 9 | delivered |

    The last one is what the two are folded into: the least `accepted`, the greatest `attempts`, the sum of
    `delivered`; `last` is that of the row with the greatest `last_sequence`.
    """
    wide = rows.select([*KEY, *_COUNTS, *_LEAST, *_GREATEST])
    orders = {}
    for name in _NEWEST:
        rank, orders[name] = _ranked(rows[name])
        wide = wide.append_column(name, rank)
    sums = [(name, "sum") for name in _COUNTS]
    least = [(name, "min") for name in _LEAST]
    greatest = [(name, "max") for name in (*_GREATEST, *_NEWEST)]
    # In one thread: the processors are busy with other tasks.
    grouped = wide.group_by(list(KEY), use_threads=False).aggregate([*sums, *least, *greatest])
    columns = {name: grouped[name] for name in KEY}
    columns |= {name: grouped[f"{name}_{how}"] for name, how in (*sums, *least, *greatest)}
    # A row that was written before there was a count of its kind: none happened. Left null it would make
    # all that follows from it null, and a recipient neither finished nor unfinished is lost.
    columns |= {name: pc.fill_null(columns[name], 0) for name in _COUNTS}
    for sequence, names in _NEWEST.items():
        place = pc.take(orders[sequence], columns[sequence])
        for name in (sequence, *names):
            columns[name] = pc.take(rows[name], place)
    return pa.table([columns[name] for name in STATE.names], schema=STATE).combine_chunks()


def _ranked(sequence: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """The place of each row in the order of sequences, none where it has none; and the rows in this order."""
    order = pc.sort_indices(sequence)
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    return pa.array(rank, mask=pc.is_null(sequence).to_numpy()), order


def _adopted(rows: pa.Table, strangers: pa.ChunkedArray) -> pa.Table:
    """With the node of the acceptance, where there is one with the same SPID and QID and no other."""
    known = rows.filter(pc.invert(strangers)).select(["spid", "qid", "node"])
    homes = known.group_by(list(LIFE)).aggregate([("node", "min"), ("node", "max")])
    homes = homes.filter(pc.equal(homes["node_min"], homes["node_max"])).select([*LIFE, "node_min"])
    lost = rows.filter(strangers).join(homes, list(LIFE), join_type="left outer", use_threads=False)
    node = pc.coalesce(lost["node_min"], lost["node"])
    lost = lost.set_column(lost.column_names.index("node"), "node", node)
    return pa.concat_tables([rows.filter(pc.invert(strangers)), lost.select(STATE.names)]).combine_chunks()


def _derived(rows: pa.Table) -> pa.Table:
    made = spid_ms(rows["spid"])
    is_end = {verb: pc.greater(rows[verb], 0) for verb in ENDS}
    failed = pc.or_(is_end[Verb.BOUNCED], is_end[Verb.EXPIRED])
    ends = pc.or_(pc.or_(failed, is_end[Verb.DELIVERED]), is_end[Verb.REMOVED])
    # Of several ends the last one stands: an undo takes back an earlier one.
    ended = pc.if_else(ends, rows["last_end"].cast(_NUMBER), None)
    accepted = rows["accepted"].cast(_NUMBER)
    since = pc.coalesce(accepted, pc.multiply(made, 1000))
    # A report that fails is not reported (RFC 5321, 4.5.5).
    reported = pc.or_(pc.greater(rows["reports"], 0), pc.fill_null(pc.equal(rows["sender"], ""), False))
    waits = pc.or_(pc.invert(ends), pc.and_(failed, pc.invert(reported)))
    crashed, doubted = (
        pc.fill_null(pc.greater(rows["delivered_sequence"], rows[name]), False)
        for name in ("unknown_sequence", "doubt_sequence")
    )
    columns = {
        "outcome": pc.case_when(pc.make_struct(*is_end.values()), *is_end, "queued"),
        "ended": ended,
        "hour": pc.multiply(pc.divide(since, _HOUR_US), _HOUR_US).cast(_AT),
        "latency_ms": pc.subtract(pc.divide(ended, 1000), pc.divide(accepted, 1000)),
        "duplicate": crashed,
        "possible_duplicate": pc.and_(doubted, pc.invert(crashed)),
        "open": pc.or_(pc.equal(rows["accepts"], 0), waits),
        "day": pc.divide(made, _DAY_MS).cast(pa.int32()).cast(pa.date32()),
    }
    for name, column in columns.items():
        rows = rows.append_column(RECIPIENT.field(name), column.cast(RECIPIENT.field(name).type))
    return rows


_DIGITS = np.zeros(256, np.int64)
for _number, _digit in enumerate("0123456789abcdef"):
    _DIGITS[ord(_digit)] = _DIGITS[ord(_digit.upper())] = _number


def spid_ms(spids: pa.ChunkedArray) -> pa.ChunkedArray:
    """When SPIDs were made, ms since the Unix epoch; of what is none, the time of the least one."""
    known = pc.match_substring_regex(spids, "^[0-9A-Fa-f]{16}$")
    text = pc.if_else(known, spids, "0" * 16).cast(pa.binary()).cast(pa.binary(16))
    flat = text.combine_chunks()
    octets = np.frombuffer(flat.buffers()[1], np.uint8).reshape(-1, 16)[flat.offset : flat.offset + len(flat)]
    # 41 bits: ten digits and the upper bits of the eleventh.
    digits = _DIGITS[octets[:, :11]]
    upper = digits @ (np.int64(16) ** np.arange(10, -1, -1, dtype=np.int64))
    return pa.chunked_array([pa.array((upper >> 3) + EPOCH_MS)])
