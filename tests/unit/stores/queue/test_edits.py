"""What changes that are written together make of a message."""

from __future__ import annotations

import pytest

from mqcd.core.model import Envelope, Recipient
from mqcd.stores.queue.edits import Edit, group_of
from mqcd.stores.queue.message import FIRST_SLOT, Message

SPID = 2
ONE, OTHER = (
    Recipient(envelope=Envelope(spid=SPID, sender="", received=0), size=1, qid=qid, address="a@example.org")
    for qid in (1, 2)
)


def message() -> Message:
    return Message({1: ONE, 2: OTHER}, events={FIRST_SLOT: b"accepted\n"})


async def test_a_slot_that_goes_may_come_again_in_one_write() -> None:
    before = message()
    edits = [Edit(exported=[(SPID, FIRST_SLOT)]), Edit(drops=[ONE.key], events=[(SPID, b"delivered\n")])]
    group = group_of(edits, {SPID: before}, {})
    [change] = group.write().changes
    assert change.puts == {FIRST_SLOT: b"!delivered\n"}
    assert change.drops == [ONE.qid]
    assert before == message(), "what is not durable is not seen"


async def test_only_what_is_there_in_the_end_is_put() -> None:
    edits = [Edit(puts=[ONE], begun=True), Edit(puts=[OTHER]), Edit(drops=[ONE.key])]
    group = group_of(edits, {SPID: message()}, {})
    [change] = group.write().changes
    assert (list(change.puts), change.drops) == ([OTHER.qid], [ONE.qid])
    assert group.after[SPID].begun == set()


async def test_nothing_is_written_of_a_message_that_another_node_has() -> None:
    group = group_of([Edit(puts=[ONE])], {}, {})
    assert group.gone == {SPID}
    assert group.write().changes == []


async def test_a_new_document_needs_a_value() -> None:
    with pytest.raises(ValueError, match="value"):
        Edit(puts=[ONE], contents={SPID: b"x", SPID + 2: b""})
    Edit(puts=[ONE], keys=[(SPID + 2, b"a key\n")], contents={SPID: b"x", SPID + 2: b""})
