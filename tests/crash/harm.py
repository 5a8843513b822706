"""The story of a disk that damages octets by itself."""

from __future__ import annotations

from mqcd.core.model import Area
from mqcd.queue.admin.fsck.repair import repair
from mqcd.queue.format.segment_header import HEADER_SIZE
from tests.contract.mail import delivered
from tests.crash.lab import ROOTS, Actor


async def damaged(actor: Actor) -> None:
    """The disk loses octets of a record in a cluster, of a cluster that fsck mends, of frames that a start
    reads, and of one that is evacuated."""
    await actor.start()
    for many, size in ((3, 200), (1, 300), (2, 250), (1, 280), (1, 260)):
        await actor.accept(many, size)
    await actor.stop()
    await actor.start()
    _spoil_a_line(actor, 1)
    # The damaged line is put aside, and those around it are taken.
    await actor.try_all(*[delivered()] * 4)
    await actor.stop()
    _spoil_a_line(actor, 0)
    async with actor.owned() as ours:
        found = repair(ours)
        assert found.ok
    await actor.start()
    await actor.accept(1, 300)
    lost = await actor.accept(1, 310)
    await actor.accept(1, 320)
    segment = actor.shard.ring.current
    assert segment is not None
    path, at = segment.path, actor.disk.read_file(segment.path).find(b"%016X" % lost)
    assert at > HEADER_SIZE
    await actor.kill()
    actor.disk.mark("Q", lost, 1)
    actor.disk.damage(path, at + 20, b"\xff")
    await actor.start()
    await actor.try_all(delivered())
    await actor.stop()
    await _lose_a_take(actor)
    await _spoil_a_segment(actor)


async def _spoil_a_segment(actor: Actor) -> None:
    """A record goes bad in a sealed segment: it is put aside at the evacuation, and the others move on."""
    await actor.start()
    spids = [await actor.accept(1, size) for size in (330, 340, 350)]
    segment = actor.shard.ring.current
    assert segment is not None
    await actor.seal()
    at = actor.disk.read_file(segment.path).find(b"%016X" % spids[1])
    assert at > HEADER_SIZE
    actor.disk.mark("Q", spids[1], 1)
    actor.disk.damage(segment.path, at + 20, b"\xff")
    await actor.evacuate()
    await actor.try_all(delivered(), delivered())
    await actor.stop()


async def _lose_a_take(actor: Actor) -> None:
    """Of two that were taken by a frame that is lost, one was delivered; of the other nothing is known."""
    await actor.start()
    for size in (210, 220, 230):
        await actor.accept(1, size)
    await actor.stop()
    await actor.start()
    claimed = await actor.claim(2)
    segment = actor.shard.ring.current
    assert segment is not None
    await actor.begin(claimed[1:])
    await actor.settle(claimed[1:], [delivered()])
    await actor.accept(1, 240)
    path = segment.path
    await actor.kill()
    actor.disk.damage(path, HEADER_SIZE + 30, b"\xff")
    await actor.start()
    await actor.try_all(delivered(), delivered())
    await actor.stop()


def _spoil_a_line(actor: Actor, number: int) -> None:
    """An octet of the address in one line of the first cluster of new mail goes bad."""
    directory = ROOTS[0] / Area.INCOMING
    path = directory / actor.disk.names(directory)[0]
    data = actor.disk.read_file(path)
    line = data.splitlines(keepends=True)[1 + number]
    spid, qid = line.split(b"|")[:2]
    actor.disk.mark("Q", int(spid, 16), int(qid))
    actor.disk.damage(path, data.find(line) + line.find(b"@"), b"#")
