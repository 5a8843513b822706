"""What the tests of the queue's administration share: a stopped queue with mail in every area."""

from __future__ import annotations

from pathlib import Path

from mqcd.core.model import Recipient
from mqcd.disk.durable import Disk
from mqcd.queue.admin.findings import Findings
from mqcd.queue.admin.fsck.repair import mend_roots, repair
from mqcd.queue.admin.fsck.survey import survey
from mqcd.queue.admin.ownership import owned
from mqcd.queue.manifest import log as manifest
from mqcd.queue.manifest.state import ManifestState
from tests.contract.mail import bounced, deferred
from tests.fakes.clock import START_MS
from tests.fakes.observer import RecordingObserver
from tests.unit.queue.support import Rig

DUE = START_MS + 3_600_000
LARGE = b"Subject: large\r\n\r\n" + b"x" * 70 + b"\r\n" * 20_000


async def fill(rig: Rig) -> None:
    """One bounce and one deferral of a message to two, two deferrals of their own, one new large one."""
    await rig.post.send("bounces@a.example", "waits@a.example")
    await rig.post.send("ann@b.example")
    await rig.post.send("bob@b.example")
    claimed = await rig.post.claim_all()
    for recipient in claimed:
        verdict = bounced() if recipient.address.startswith("bounces") else deferred(DUE)
        await rig.post.settle(verdict, recipient)
    await rig.post.send("new@c.example", content=LARGE)


async def filled(rig: Rig) -> Rig:
    """The same, stopped in order."""
    await fill(rig)
    await rig.close()
    return rig


def look(rig: Rig) -> Findings:
    """What fsck finds."""
    return survey(Disk(), rig.options)


async def mend(rig: Rig) -> Findings:
    """What fsck finds after --repair."""
    await mend_roots(Disk(), rig.options)
    async with owned(rig.options, rig.clock, RecordingObserver()) as ours:
        return repair(ours)


def state_of(rig: Rig) -> ManifestState:
    """What the MANIFEST says."""
    state = manifest.read(Disk(), rig.queue / "MANIFEST")
    assert state is not None
    return state


def cluster_of(rig: Rig, area: str) -> Path:
    """The only cluster of an area."""
    (path,) = (rig.queue / area).rglob("*.mqc")
    return path


def damage(path: Path, line: int) -> bytes:
    """Turn one octet of a line (from 1) over; returns the line as it is now."""
    lines = path.read_bytes().splitlines(keepends=True)
    raw = bytearray(lines[line - 1])
    raw[len(raw) // 2] ^= 1
    lines[line - 1] = bytes(raw)
    path.write_bytes(b"".join(lines))
    return bytes(raw)


def addresses(recipients: list[Recipient]) -> list[str]:
    """Who they are, sorted."""
    return sorted(each.address for each in recipients)
