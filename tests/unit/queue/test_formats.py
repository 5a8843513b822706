"""docs/formats.md against the code: orders, sizes, numbers and names."""

from __future__ import annotations

import re
import struct
from dataclasses import fields
from pathlib import Path

import pytest

from mqcd.core.model import Area
from mqcd.core.queueing.spid import SILOS, silo_of
from mqcd.eventlog.files import Source, events_path
from mqcd.queue.clusters import file as cluster
from mqcd.queue.format import frame, keys, record, segment_header, transitions, verdict
from mqcd.queue.format.frame import Kind, Mark
from mqcd.queue.manifest import log as manifest
from mqcd.queue.manifest.state import ClusterState, Edit, KeyFile
from tests.unit.queue.support import SPID, recipient, spool_path

TEXT = (Path(__file__).parents[3] / "docs" / "formats.md").read_text()
_CODES = {
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "16 octets": "16s",
    "8 octets": "8s",
    "4 octets": "4s",
    "3 pad": "3x",
    "1 pad": "x",
    "8 pad": "8x",
}


def table(head: str, section: str = "") -> list[list[str]]:
    """The rows of the section's first table whose first line is `head`, cells without their back quotes."""
    lines = TEXT.split(f"\n## {section}", 1)[1].split(f"{head}\n", 1)[1].splitlines()
    rows = []
    for line in lines[1:]:
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!`)\|(?!`)", line.strip("|"))
        rows.append([cell.strip().strip("`") for cell in cells])
    return rows


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("segment", segment_header._HEADER),
        ("frame", frame._HEADER),
        ("submission", frame._SUBMISSION),
        ("entry", frame._ENTRY),
        ("begun", frame._BEGUN),
        ("take", frame._TAKE),
        ("key file header", keys._HEADER),
        ("key", keys._RECORD),
    ],
)
def test_structs_are_as_written(name: str, layout: struct.Struct) -> None:
    codes = "<" + "".join(_CODES[row[0]] for row in table(f"| struct | {name} |"))
    assert _spelled(codes) == _spelled(layout.format)
    assert struct.calcsize(codes) == layout.size


def _spelled(codes: str) -> str:
    """`codes` with counts before numbers written out: 2I is II."""
    return re.sub(r"(\d+)([BHIQ])", lambda match: match[2] * int(match[1]), codes)


def test_kinds_and_marks_are_as_written() -> None:
    kinds = {int(row[0]): row[1] for row in table("| kind | name | body |")}
    assert kinds == {kind.value: kind.name for kind in Kind}
    marks = {int(row[0]): (row[1], row[2]) for row in table("| mark | name | event |")}
    assert marks == {mark.value: (mark.name, str(transitions.VERB_OF.get(mark, ""))) for mark in Mark}


def test_record_fields_are_in_the_order_written() -> None:
    names = [row[0] for row in table("| field | holds |", "Record line")]
    given = recipient(qid=7, zone="Z", listener="L", client="C", user="U", tls="T", code=450)
    values = {
        "spid": f"{SPID:016X}",
        "qid": "7",
        "area": "d",
        "due": str(given.due),
        "size": str(given.size),
        "attempts": "2",
        "unknowns": "1",
        "code": "450",
        "status": given.status,
        "remote": given.remote,
        "reply": record.escape(given.reply),
        "recipient": given.address,
        "dsn": given.dsn,
        "amended": "",
        "received": str(given.envelope.received),
        "origin": "s",
        "body": "8",
        "zone": "Z",
        "listener": "L",
        "client": "C",
        "user": "U",
        "tls": "T",
        "envelope dsn": given.envelope.dsn,
        "labels": "",
        "sender": given.envelope.sender,
    }
    written = record.encode(given).decode().split("|")
    assert names == [*values, "crc"]
    assert written[:-1] == list(values.values())
    assert len(names) == record.FIELDS


def test_letters_of_areas_are_as_written() -> None:
    letters = dict(re.findall(r"`([idbhr])` (\w+)", TEXT.split("| `area` |")[1].split("\n")[0]))
    assert {letter: Area(name) for letter, name in letters.items()} == {
        letter: area for area, letter in record._AREAS.items()
    }


def test_note_fields_are_in_the_order_written() -> None:
    [names] = re.findall(r"`(destination\|[a-z_|]+)`", TEXT)
    assert names.split("|") == [*verdict.ROUTE, *verdict.Note._fields[1:]]


def test_manifest_fields_are_as_written() -> None:
    assert [row[0] for row in table("| field | holds |", "MANIFEST")] == [
        field.name for field in fields(Edit)
    ]
    assert [row[0] for row in table("| cluster | holds |")] == [field.name for field in fields(ClusterState)]
    assert [row[0] for row in table("| key file | holds |")] == [field.name for field in fields(KeyFile)]
    assert f'"format":{manifest.FORMAT}' in TEXT


def test_magic_words_and_names_are_as_written() -> None:
    assert f"`{segment_header.MAGIC.decode()}`" in TEXT
    assert f"first {segment_header.HEADER_SIZE} octets" in TEXT
    assert frame.MAGIC == b"mqF\x01"
    assert f"`{cluster.FIRST_LINE.decode().strip()}`" in TEXT
    assert spool_path(Path("spool"), SPID) == Path(f"spool/s{(SPID >> 1) % SILOS + 1:02d}/{SPID:016X}.msg")
    assert silo_of(SPID, 32) == (SPID >> 1) % 32 + 1
    assert events_path(Path("events"), Source("n", 2), 34).name == "n-2-0000000034.jsonl.gz"
