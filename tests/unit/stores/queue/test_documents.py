"""Changes that are written together: what is known of the messages afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Envelope, Recipient
from mqcd.core.queueing.spid import SpidSource, format_spid
from mqcd.stores.backend import Backend, Stored, Write, failed
from mqcd.stores.mapping import MappingStore
from mqcd.stores.queue.documents import MOST_CHANGES, Documents
from mqcd.stores.queue.edits import Edit
from mqcd.stores.queue.message import FIRST_SLOT

VALUE = b"a value"


class Slow(MappingStore):
    """Writes when it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[asyncio.Future[Sequence[int]]] = []
        self.writes: list[Write] = []

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        self.writes.append(write)
        done = super().write(write)
        self.waiting.append(asyncio.get_running_loop().create_future())
        self.waiting[-1].add_done_callback(lambda _: done.result())
        return self.waiting[-1]

    async def let(self, *edits: asyncio.Future[None]) -> None:
        """Write until these are done."""
        while not all(edit.done() for edit in edits):
            self.waiting.pop().set_result(())
            await asyncio.sleep(0)


def documents_of(store: Backend) -> Documents:
    return Documents(store, {}, SpidSource(0, 0), lambda: 0, lambda _: None, lambda: 0, lambda: None)


def edit(**what: object) -> Edit:
    return Edit(ended=lambda _: None, **what)  # type: ignore[arg-type]


def recipients(*spids: int) -> Sequence[Recipient]:
    """One of each message."""
    return [
        Recipient(envelope=Envelope(spid=spid, sender="", received=0), size=1, qid=1, address="a@example.org")
        for spid in spids
    ]


async def test_changes_that_follow_two_of_one_write_both_end() -> None:
    """As when a stop gives back two messages that have just been accepted."""
    store = Slow()
    documents = documents_of(store)
    following: list[asyncio.Future[None]] = []

    def change(spid: int, then: int) -> asyncio.Future[None]:
        def ended(_: bool) -> None:
            following.append(documents.edit(edit(puts=recipients(then), contents={then: b""})))

        return documents.edit(Edit(puts=recipients(spid), contents={spid: b""}, ended=ended))

    first = documents.edit(edit(puts=recipients(1), contents={1: b""}))
    both = change(2, 4), change(3, 5)
    await store.let(first)
    await store.let(*both)
    assert len(store.waiting) == 1
    await store.let(*following)
    assert sorted(documents.messages) == [1, 2, 3, 4, 5]


async def test_a_group_ends_before_what_follows_one_of_it_begins() -> None:
    store = Slow()
    documents = documents_of(store)
    following: list[asyncio.Future[None]] = []
    writes: list[int] = []

    def one_ended(_: bool) -> None:
        following.append(documents.edit(edit(puts=recipients(4), contents={4: b""})))

    def other_ended(_: bool) -> None:
        writes.append(len(store.writes))

    first = documents.edit(edit(puts=recipients(1), contents={1: b""}))
    one = documents.edit(Edit(puts=recipients(2), contents={2: b""}, ended=one_ended))
    other = documents.edit(Edit(puts=recipients(3), contents={3: b""}, ended=other_ended))
    await store.let(first, one, other)
    assert writes == [2]
    await store.let(*following)


async def test_a_write_that_is_cancelled_cancels_no_caller() -> None:
    store = Slow()
    documents = documents_of(store)
    one, other = recipients(2, 4)
    cancelled = documents.edit(edit(puts=[one], contents={one.spid: b"x"}))
    store.waiting.pop().cancel()
    with pytest.raises(StoreUnavailable):
        await cancelled
    await store.let(documents.edit(edit(puts=[other], contents={other.spid: b"x"})))
    assert documents.messages.keys() == {other.spid}


@pytest.mark.parametrize("together", [False, True])
async def test_an_event_in_the_place_of_an_exported_one_is_exported(together: bool) -> None:
    store = Slow()
    documents = documents_of(store)
    one, other = recipients(2, 4)
    for each in (one, other):
        await store.let(
            documents.edit(edit(puts=[each], contents={each.spid: b"x"}, events=[(each.spid, b"accepted\n")]))
        )
    busy = documents.edit(edit(puts=[other]))
    exported = documents.edit(edit(exported=[(one.spid, FIRST_SLOT)]))
    if not together:
        await store.let(busy, exported)
    ended = documents.edit(edit(drops=[one.key], events=[(one.spid, b"delivered\n")]))
    await store.let(busy, exported, ended)
    assert documents.unexported == {
        (other.spid, FIRST_SLOT): b"accepted\n",
        (one.spid, FIRST_SLOT): b"delivered\n",
    }


async def test_a_mark_that_was_not_written_comes_again() -> None:
    store = Slow()
    documents = documents_of(store)
    one, other = recipients(2, 4)
    failing = documents.edit(edit(puts=[one], contents={one.spid: b"x"}))
    store.waiting.pop().set_exception(StoreUnavailable("no answer"))
    with pytest.raises(StoreUnavailable):
        await failing
    await store.let(documents.edit(edit(puts=[one], contents={one.spid: b"x"})))
    await store.let(documents.edit(edit(puts=[other], contents={other.spid: b"x"})))
    new = [write for write in store.writes if write.changes[0].is_new]
    assert [bool(write.marks) for write in new] == [True, True, False]


class Faulty(MappingStore):
    """One write raises what no store should."""

    faults = 1

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        if self.faults:
            self.faults = 0
            raise RuntimeError("a fault")
        return super().write(write)


@pytest.mark.parametrize("where", ["in the store", "in what follows"])
async def test_a_fault_fails_its_change_alone(where: str) -> None:
    def end(_: bool) -> None:
        if where == "in what follows":
            raise RuntimeError("a fault")

    store = Faulty() if where == "in the store" else MappingStore()
    documents = documents_of(store)
    one, other = recipients(2, 4)
    with pytest.raises(RuntimeError, match="a fault"):
        await documents.edit(Edit(puts=[one], contents={one.spid: b"x"}, ended=end))
    await asyncio.wait_for(documents.edit(edit(puts=[other], contents={other.spid: b"x"})), 10)
    assert other.spid in documents.messages


class Unanswered(MappingStore):
    """Writes without an answer as often as it is told to."""

    unanswered = 0

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        done = super().write(write)
        if not self.unanswered:
            return done
        self.unanswered -= 1
        return failed(StoreUnavailable("no answer"))


async def test_refused_mail_that_cannot_be_removed_is_tried_again() -> None:
    kept: dict[str, bytes] = {}
    store = Unanswered(kept)
    documents = documents_of(store)
    one, other = recipients(2, 4)
    store.unanswered = 1
    with pytest.raises(StoreUnavailable):
        await documents.edit(edit(puts=[one], contents={one.spid: b"x"}))
    assert not documents.refused
    assert set(kept) == {"marks"}, "it is removed at once"
    documents.refused.add({one.spid: {1: VALUE}})
    documents.refused.failed([one.spid])
    await documents.edit(edit(puts=[other], contents={other.spid: b"x"}))
    assert documents.refused.may_be_there(one.spid), "other mail does not wait for it"
    documents.try_again()
    assert not documents.refused
    assert other.spid in documents.messages


async def test_refused_mail_that_comes_again_stays() -> None:
    store = Unanswered()
    documents = documents_of(store)
    [one] = recipients(2)
    store.unanswered = 2
    with pytest.raises(StoreUnavailable):
        await documents.edit(edit(puts=[one], contents={one.spid: b"x"}))
    assert documents.refused.may_be_there(one.spid)
    await documents.edit(edit(puts=[one], contents={one.spid: b"x"}))
    documents.try_again()
    assert (await store.content(one.spid)).size == 1


class Keeping(MappingStore):
    """Removes nothing of some messages: every write that would fails."""

    def __init__(self, *kept: int) -> None:
        super().__init__()
        self.kept = set(kept)
        self.sizes: list[int] = []
        """Of the removals, the failed ones as negative numbers."""

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        ended = [change.spid for change in write.changes if change.due is None]
        fails = not self.kept.isdisjoint(ended)
        if ended:
            self.sizes.append(-len(ended) if fails else len(ended))
        return failed(StoreUnavailable("it may not be deleted")) if fails else super().write(write)


async def test_a_removal_that_always_fails_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    stuck, others = [2 * MOST_CHANGES, 6 * MOST_CHANGES], range(0, 8 * MOST_CHANGES, 2)
    store = Keeping(*stuck)
    documents = documents_of(store)
    documents.refused.add({spid: {1: VALUE} for spid in others})
    for _ in range(10):
        documents.try_again()
    assert [spid for spid in others if documents.refused.may_be_there(spid)] == stuck
    logged = [record.getMessage() for record in caplog.records]
    assert sum(format_spid(stuck[0]) in text for text in logged) == 1
    assert len(logged) == 4, "two groups, two messages"
    documents.refused.add({1: {1: VALUE}})
    documents.try_again()
    assert not documents.refused.may_be_there(1)


async def test_an_outage_costs_one_removal_a_try_and_few_afterwards() -> None:
    spids = range(0, 8 * MOST_CHANGES, 2)
    store = Keeping(*spids)
    documents = documents_of(store)
    documents.refused.add({spid: {1: VALUE} for spid in spids})
    for _ in range(4):
        documents.try_again()
    store.kept.clear()
    documents.try_again()
    assert not documents.refused
    assert store.sizes[:4] == [-MOST_CHANGES, -1, -1, -1]
    assert store.sizes[4:7] == [1, MOST_CHANGES, MOST_CHANGES]


async def test_new_mail_waits_for_one_removal_at_most() -> None:
    store = Slow()
    documents = documents_of(store)
    documents.refused.add({spid: {1: VALUE} for spid in range(0, 8 * MOST_CHANGES, 2)})
    documents.try_again()
    [one] = recipients(1)
    await store.let(documents.edit(edit(puts=[one], contents={one.spid: b"x"})))
    assert [len(write.changes) for write in store.writes] == [MOST_CHANGES, 1, MOST_CHANGES]


async def test_content_does_not_wait_for_a_removal_that_failed() -> None:
    store = Slow()
    documents = documents_of(store)
    one, other = recipients(2, 4)
    documents.refused.add({one.spid: {1: VALUE}})
    documents.refused.failed([one.spid])
    busy = documents.edit(edit(puts=[other], contents={other.spid: b"x"}))
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(documents.may_come(one.spid), 10)
    await store.let(busy)


class SlowShared(Slow):
    """Refused mail is removed several times."""

    lease_ms = 60_000


async def test_content_waits_for_a_removal_under_way() -> None:
    """The first removal is durable, so nothing is there; but a later one would take the content."""
    store = SlowShared()
    documents = documents_of(store)
    documents.refused.add({2: {1: VALUE}, 4: {1: VALUE}})
    documents.refused.removed([2, 4])
    await asyncio.wait_for(documents.may_come(4), 10)
    documents.try_again()
    assert [change.spid for change in store.writes[-1].changes] == [2]
    coming, other = (asyncio.ensure_future(documents.may_come(spid)) for spid in (2, 4))
    await asyncio.sleep(0.01)
    assert (coming.done(), other.done()) == (False, True)
    store.waiting.pop().set_result(())
    await asyncio.wait_for(coming, 10)
    documents.try_again()
    assert len(store.writes) == 1


async def test_content_waits_for_a_removal_of_an_earlier_lease() -> None:
    store = SlowShared()
    documents = documents_of(store)
    documents.refused.add({2: {1: VALUE}})
    documents.refused.removed([2])
    documents.try_again()
    documents.begin_again({}, SpidSource(1, 0))
    coming = asyncio.ensure_future(documents.may_come(2))
    await asyncio.sleep(0.01)
    assert not coming.done()
    for _ in ("the earlier one", "one of this lease"):
        store.waiting.pop().set_result(())
        await asyncio.sleep(0.01)
    await asyncio.wait_for(coming, 10)


async def test_a_message_that_has_the_spid_of_refused_mail_stays() -> None:
    documents = documents_of(MappingStore())
    documents.refused.add({2: {1: VALUE}, 4: {1: VALUE}})
    documents.refused.failed([2, 4])
    assert documents.take_back(Stored(spid=2, values={1: VALUE}))
    assert not documents.take_back(Stored(spid=4, values={1: b"of another node"}))
    assert documents.refused.may_be_there(2)
    assert not documents.refused.may_be_there(4)
