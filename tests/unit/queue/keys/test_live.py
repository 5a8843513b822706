"""Keys of live segments."""

from __future__ import annotations

from mqcd.core.queueing.idempotency import Used
from mqcd.queue.format import keys
from mqcd.queue.format.keys import RECORD
from mqcd.queue.keys.live import LiveKeys
from tests.unit.queue.format.test_keys import DIGEST, name, packed, segments


def filled(count: int) -> LiveKeys:
    """Keys of segments 1 to 3, a third each."""
    live = LiveKeys()
    for number in range(count):
        live.add(packed(number, 1 + 3 * number // count))
    return live


def test_each_key_is_found() -> None:
    live = filled(9000)
    assert live.count == 9000
    assert [live.find(name(number)) for number in (0, 8999)] == [
        Used(0, DIGEST, 1000),
        Used(8999, DIGEST, 9999),
    ]
    assert live.find(name(9000)) is None


def test_the_keys_of_a_segment_are_taken_out() -> None:
    live = filled(9000)
    taken = live.until(1)
    records = taken.records
    assert set(segments(records)) == {1}
    assert len(records) == 3000 * RECORD
    live.add(packed(9000, 4))
    live.drop(taken)
    assert live.count == 6001
    assert live.find(name(2999)) is None
    assert live.find(name(3000)) == Used(3000, DIGEST, 4000)
    assert live.until(1).records == b""


def test_a_key_that_is_used_again_has_its_last_use() -> None:
    live = filled(300)
    live.add(keys.pack(name(5), DIGEST, 77, 9000, 3))
    assert live.find(name(5)) == Used(77, DIGEST, 9000)
    live.drop(live.until(2))
    assert live.find(name(5)) == Used(77, DIGEST, 9000)
