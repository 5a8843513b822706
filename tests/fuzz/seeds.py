"""The corpus: what a real queue has on its disk after a short and busy life, and what clients say to it.

    python -m tests.fuzz.seeds

writes it anew, after a change of a format. Whatever a fuzzer finds is added by hand, named after the finding.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from mqcd.config.settings import JournalSettings
from mqcd.core.model import Origin, Reported, Settlement, Verdict
from mqcd.disk.file_window import Window
from mqcd.queue.format import frame, segment_header
from mqcd.queue.wal.scan import Walk
from mqcd.queue.wal.segments import Segment
from tests.contract.harness import HOUR
from tests.contract.mail import bounced, deferred, delivered, expired
from tests.fakes.killed import copy_as_killed
from tests.unit.queue.support import Rig
from tests.unit.submit.dialogues.runner import octets, read

CORPUS = Path(__file__).with_name("corpus")
DIALOGUES = Path(__file__).parents[1] / "unit/submit/dialogues/cases"
_DIALOGUES = (
    "5321-two-messages",
    "5321-lf-dot-lf",
    "2920-pipelined",
    "3030-chunks",
    "3030-pipelined",
    "3030-too-large",
    "3461-envelope",
    "4954-cancel",
    "4954-cram-md5",
    "6531-recipient",
    "4865-holduntil-syntax",
    "6710-lowered",
    "6409-key",
)
_RING = JournalSettings(segmentsize=64 << 10, segments=8, inline_max=4 << 10)


async def live(root: Path) -> Rig:
    """A life with every kind of frame, edit and file; it is still open."""
    rig = await Rig(root, journal=_RING, maxclustersize=2048).open()
    post = rig.post
    await post.send("one@example.org", content=b"Subject: 1\r\n\r\nshort\r\n")
    await post.send(
        "a@b\u00fccher.example", '"b | c"@example.org', "c@[IPv6:2001:db8::1]", sender="\u00fc@example.com"
    )
    await post.send("large@example.net", content=b"x" * 9000)
    await rig.store.begin(await post.claim_all(), "mx.example.org")
    claimed = list(rig.shard.entries.active.values())
    recipients = [await rig.shard.recipient(each) for each in claimed]
    verdicts: tuple[Verdict, ...] = (
        delivered(),
        deferred(rig.clock.now() + HOUR),
        bounced("no such | user 100%"),
        expired(),
    )
    for one, verdict in zip(recipients, verdicts, strict=False):
        await post.settle(verdict, one)
    await rig.store.park(recipients[4:], rig.clock.now() + 5000)
    await post.send("late@example.org")
    await rig.store.begin(await post.claim_all(), "mx.example.org")
    copy_as_killed(root, root.with_name("early"))
    await rig.evacuate()
    [bounce, *_] = await post.claim_bounces()
    report = post.submission("sender@example.com", sender="", origin=Origin.REPORT)
    told = Settlement(recipient=bounce, verdict=Reported(report_spid=report.envelope.spid))
    await rig.store.settle([told], [report])
    rig.clock.advance(2 * HOUR)
    await post.send("two@example.org")
    await rig.store.begin(await post.claim_all(), "mx.example.net")
    await rig.seal()
    await post.send("three@example.org", "four@example.org")
    return await rig.killed()


def _dialogues() -> dict[str, bytes]:
    """What clients send in some dialogues, each behind the octets that choose settings and cuts."""
    found = {}
    for number, name in enumerate(_DIALOGUES):
        case = read(DIALOGUES / f"{name}.txt")
        sent = [
            octets(text) + (b"\r\n" if kind == "C:" else b"") for kind, text in case.steps if kind[0] == "C"
        ]
        found[name] = bytes([number % 4 + 4, (0, 0, 7)[number % 3]]) + b"".join(sent)
    return found


def _over_tls() -> dict[str, bytes]:
    """Clients that turn to TLS: as they should, and with commands behind STARTTLS."""
    mail = b"EHLO b\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<a@example.com>\r\nDATA\r\nSubject: b\r\n.\r\n"
    begun = b"EHLO a\r\nMAIL FROM:<c@b.example>\r\nRCPT TO:<c@example.com>\r\nRSET\r\n"
    return {
        "3207-mail": b"\x10\0" + begun + b"STARTTLS\r\n" + mail,
        "3207-injected": b"\x10\x60" + begun + b"STARTTLS\r\n" + mail,
    }


def _segments(root: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted((root / "queue/journal").glob("[0-9]*.wal")):
        data = path.read_bytes()
        header = segment_header.unpack(data)
        if header is not None:
            walk = Walk(Window.over(data), Segment(header, path), bound=None)
            kinds = "-".join(dict.fromkeys(each.header.kind.name.lower() for each in walk))
            # A few zeros behind the last frame, as in a slot that is not full.
            found[kinds or "empty"] = data[: walk.end + 64]
    return found


async def write() -> None:
    """Write it."""
    made: dict[str, dict[str, bytes]] = {"manifest": {}, "cluster": {}, "segment": {}, "slot": {}}
    made |= {"record": {}, "frame": {}, "note": {}}
    with tempfile.TemporaryDirectory() as base:
        rig = await live(Path(base) / "q")
        try:
            # The last is what a kill left and a start found.
            for root in sorted(Path(base).iterdir()):
                made["manifest"][root.name] = (root / "queue/MANIFEST").read_bytes()
                for path in root.rglob("*.mqc"):
                    made["cluster"][path.parts[-2]] = path.read_bytes()
                made["segment"] |= _segments(root)
        finally:
            await rig.close()
    made["session"] = _dialogues() | _over_tls()
    for name, data in made["cluster"].items():
        made["record"][name] = data.split(b"\n")[1] + b"\n"
    for name, data in made["segment"].items():
        header = segment_header.unpack(data)
        assert header is not None
        made["slot"][name] = data[:80]
        for each in Walk(Window.over(data), Segment(header, Path(name)), bound=None):
            kind = each.header.kind
            made["frame"][kind.name.lower()] = bytes([kind - 1, each.header.entries]) + bytes(each.body)
            if kind is frame.Kind.SETTLE:
                for _, entry in frame.read_entries(each.body, 0, each.header.entries):
                    made["note"][entry.mark.name.lower()] = entry.note
    for target, files in made.items():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (CORPUS / target / name).write_bytes(data)


if __name__ == "__main__":
    asyncio.run(write())
