"""Queues as Mailismus writes them: the two samples that it really wrote, and small ones made here."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqcd.disk.durable import Disk
from mqcd.queue.admin.transfer.job import Import, Outcome
from mqcd.queue.admin.transfer.letters import Tree
from mqcd.queue.admin.transfer.mailismus import read_tree
from tests.fakes.clock import START_MS
from tests.fakes.observer import RecordingObserver
from tests.fakes.workers import LocalWorkers
from tests.unit.queue.support import Rig

DATA = Path(__file__).parents[3] / "data" / "mailismus"
RECEIVED = START_MS - 7_200_000
LATEST = 1 << 42
"""A longest delay of decades: the samples' own times come out as they are."""
LOOPBACK = 2130706433
CONTENT = b"Received: from client\r\n\tby old; now\r\nSubject: hello\r\n\r\nWorld\r\n"


def unpack(name: str, directory: Path) -> Path:
    """One of the samples, hard links kept; returns what holds `var` and `manifest.jsonl`."""
    with tarfile.open(DATA / "samples.tar.xz") as archive:
        # By attribute: the argument of this meaning is not known to every Python 3.11.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(directory)
    return directory / name


def submitted(sample: Path) -> list[dict[str, Any]]:
    """What was submitted to make a sample."""
    lines = (sample / "manifest.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if line]


def record(spid: str = "F97BB3A0", qid: int = 1, recipient: str = "ann@b.example", **changes: Any) -> str:
    """One record line."""
    mailbox, _, domain = recipient.rpartition("@")
    fields = {
        "sender": "me@here.example",
        "mailbox": mailbox,
        "domain": domain,
        "received": RECEIVED,
        "source": LOOPBACK,
        "retries": 0,
        "code": 0,
        **changes,
    }
    return "|".join(map(str, (spid, qid, *fields.values()))) + "\n"


@dataclass(frozen=True, slots=True)
class Made:
    """A tree that a test writes."""

    var: Path

    def cluster(self, area: str, *lines: str, name: str = "M000001A1F97BB4C6-1.mqc") -> Path:
        """A cluster; area may name a directory within deferred."""
        path = self.var / "queue" / area / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(lines).encode())
        return path

    def content(self, spid: str = "F97BB3A0", octets: bytes = CONTENT, qids: tuple[int, ...] = ()) -> Path:
        """A spool file, or with `qids` one hard link for each."""
        silo = self.var / "spool" / f"s{(int(spid, 16) & 31) + 1:02d}"
        silo.mkdir(parents=True, exist_ok=True)
        first, *others = [silo / f"{spid}-{qid}.msg" for qid in qids] or [silo / f"{spid}.msg"]
        first.write_bytes(octets)
        for other in others:
            os.link(first, other)
        return first

    def diagnosis(self, spid: str, qid: int, text: str, remote: bytes = b"\x7f\0\0\1") -> None:
        """What a next hop said; without `remote` an error of its own."""
        path = self.var / "spool" / "ndrdiag" / f"{spid}-{qid}.ndr"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((b"\x01" + remote if remote else b"") + text.encode())


def made(tmp_path: Path, *new: str) -> Made:
    """An empty tree, or one with a cluster of these new records and the content of a first message."""
    tree = Made(tmp_path / "old")
    for area in ("incoming", "deferred", "bounces"):
        (tree.var / "queue" / area).mkdir(parents=True)
    (tree.var / "spool").mkdir()
    if new:
        tree.cluster("incoming", *new)
        tree.content()
    return tree


def read(var: Path) -> Tree:
    """What the reader makes of a tree."""
    return read_tree(Disk(), var, now=START_MS, latest=LATEST)


def job(rig: Rig, var: Path) -> Import:
    """The import of a tree into a queue that no server runs on."""
    return Import(
        options=rig.options,
        clock=rig.clock,
        observer=RecordingObserver(),
        kind="mailismus",
        workers=LocalWorkers(Disk()),
        read=lambda known: read_tree(Disk(), var, now=rig.clock.now(), latest=LATEST, known=known),
    )


async def bring(rig: Rig, var: Path) -> Outcome:
    """Import a tree."""
    return await job(rig, var).run()


def image(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}
