"""Changes of messages, and what those of one write make of them. It decides; `documents` acts.

What an edit does to the values of a message's document, in this order:

| field | value | |
|---|---|---|
| `puts` | at the recipient's QID | comes or is replaced |
| `keys` | at KEY_SLOT | comes |
| `drops` | at a QID, or KEY_SLOT | goes |
| `events` | at the slot above the highest that is there | comes |
| `exported` | at a slot | goes |

So an event may take the slot of one that goes by the same write. `touched` has the numbers of all values that
an edit of the group names: those that are there in the end are put, the others dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

from mqcd.core.model import Recipient
from mqcd.core.value import value
from mqcd.stores.backend import Change, Marks, Write
from mqcd.stores.queue.events import Line
from mqcd.stores.queue.message import KEY_SLOT, Message
from mqcd.stores.queue.waiting import Key

LOST = "another node has taken the message"

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Edit:
    """A change by one call."""

    puts: Sequence[Recipient] = ()
    begun: bool = False
    """Whether `puts` have attempts that begin."""
    drops: Sequence[Key] = ()
    events: Sequence[Line] = ()
    exported: Sequence[Key] = ()
    """Events, by SPID and slot, that are in an event file now."""
    keys: Sequence[Line] = ()
    """Idempotency keys, by the SPID of each one's document."""
    contents: Mapping[int, bytes | None] = field(default_factory=dict)
    """Of new documents, by SPID: of a message its content, None where that was staged; of an idempotency key
    b"". Each of them has a value in `puts` or `keys`, else ValueError."""
    replaces: bool = False
    """Whether its new messages replace what else it changes: a report its bounces."""
    ended: Callable[[bool], None] = lambda _: None
    """Called once it is durable (True) or has failed, before `done`. Lost messages are gone before that."""
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def __post_init__(self) -> None:
        if not self.contents:
            return
        if self.contents.keys() - {each.spid for each in self.puts} - {spid for spid, _ in self.keys}:
            raise ValueError("a new document needs a value")

    @property
    def replaced(self) -> Set[int]:
        """The messages that it changes beside its new ones."""
        return set(self.spids) - self.contents.keys()

    def fails_without(self, lost: Set[int]) -> bool:
        """Whether it fails when other nodes have these messages; else what it changes of them is left out.
        An attempt needs all of its messages; new ones need themselves, and one that they replace."""
        needed = self.spids if self.begun else self.contents
        return not lost.isdisjoint(needed) or (self.replaces and self.replaced <= lost)

    @property
    def spids(self) -> Iterable[int]:
        """The messages that it changes; one may come several times."""
        others = chain(self.drops, self.events, self.exported, self.keys)
        return chain((each.spid for each in self.puts), (spid for spid, _ in others))

    def end(self, failure: BaseException | None) -> None:
        """It is durable (None), or has failed."""
        try:
            self.ended(failure is None)
        except Exception as error:
            # The other changes must end nevertheless.
            log.critical("what follows a change failed because of a fault", exc_info=error)
            failure = error
        # Its caller may have gone.
        if self.done.done():
            return
        if failure is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(failure)


@value(kw_only=False)
class Group:
    """Changes that are written together; without edits it removes what was refused."""

    edits: Sequence[Edit] = ()
    after: Mapping[int, Message] = field(default_factory=dict)
    """The messages that they change, as they are then."""
    touched: Mapping[int, Set[int]] = field(default_factory=dict)
    """The numbers of the values that they change, by SPID."""
    gone: Set[int] = frozenset()
    """Messages that are another node's since an edit was made: nothing of them is written."""
    marks: Marks = field(default_factory=dict)
    """Marks with a new number."""
    removals: Sequence[Change] = ()

    def new(self, edits: Iterable[Edit]) -> Mapping[int, Mapping[int, bytes]]:
        """New messages of some of its edits, with the values that were written."""
        spids = chain.from_iterable(edit.contents for edit in edits)
        return {spid: self.after[spid].values() if spid in self.after else {} for spid in spids}

    def write(self) -> Write:
        """What the store is to do."""
        if self.removals:
            return Write(changes=self.removals)
        contents: dict[int, bytes | None] = {}
        replaced: set[int] = set()
        for edit in self.edits:
            contents.update(edit.contents)
            if edit.replaces:
                replaced |= edit.replaced
        changes = [self._change(spid, contents, spid in replaced) for spid in self.after]
        changes.sort(key=lambda change: (not change.is_new, change.due is None))
        return Write(changes=changes, marks=self.marks)

    def _change(self, spid: int, contents: Mapping[int, bytes | None], replaced: bool) -> Change:
        message, touched = self.after[spid], self.touched[spid]
        there = message.numbers
        zones = [each.envelope.zone for each in message.records.values()] if spid in contents else []
        return Change(
            spid=spid,
            puts={number: message.value(number) for number in sorted(touched & there)},
            drops=sorted(touched - there),
            due=message.due,
            values=message.values,
            is_new=spid in contents,
            content=contents.get(spid),
            zone=zones[0] if zones else "",
            replaced=replaced,
        )


def group_of(edits: Sequence[Edit], messages: Mapping[int, Message], marks: Marks) -> Group:
    """What edits make of these messages, one after the other. O(recipients of each message)."""
    after: dict[int, Message] = {}
    touched: dict[int, set[int]] = defaultdict(set)
    for edit in edits:
        for spid in edit.spids:
            if spid not in after:
                before = messages.get(spid)
                after[spid] = before.copy() if before is not None else Message({})
        _apply(edit, after, touched)
    new = set(chain.from_iterable(edit.contents for edit in edits))
    gone = {spid for spid in after if spid not in messages and spid not in new}
    for spid in gone:
        del after[spid]
    return Group(edits, after, touched, gone, marks)


def _apply(edit: Edit, after: Mapping[int, Message], touched: Mapping[int, set[int]]) -> None:
    for each in edit.puts:
        message = after[each.spid]
        message.records[each.qid] = each
        (message.begun.add if edit.begun else message.begun.discard)(each.qid)
        touched[each.spid].add(each.qid)
    for spid, line in edit.keys:
        after[spid].key = line
        touched[spid].add(KEY_SLOT)
    for spid, number in edit.drops:
        after[spid].drop(number)
        touched[spid].add(number)
    for spid, line in edit.events:
        touched[spid].add(after[spid].add_event(line))
    for spid, slot in edit.exported:
        after[spid].events.pop(slot, None)
        touched[spid].add(slot)
