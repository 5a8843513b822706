"""What the events of a queue may say of a recipient's life. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from mqcd.core.events import ATTEMPT_ENDS, Verb

Event = dict[str, Any]
Key = tuple[int, int]
"""SPID and QID."""

LETTERS = {
    "accepted": "A",
    "attempted": "T",
    "delivered": "D",
    "deferred": "F",
    "bounced": "B",
    "expired": "E",
    "reported": "R",
    "discarded": "X",
    "outcome-unknown": "U",
    "held": "H",
    "released": "L",
    "removed": "M",
    "restored": "V",
    "redirected": "N",
    "rescheduled": "K",
}
_LIFE = re.compile(r"A(T+[FU]|F|T*[HLNKV]|T*MV)*(T*(D|[BE][RX]?|M[RX]?|X)?)?")
"""A life, ended or not. An X alone: another store has it. `T+`: what was given back after it had begun may
begin again."""
_REPORT = re.compile(r"A(T+[FU]|F|T*[HLNKV]|T*MV)*(T*(D|B|E|M)?)?")
_WHOLE_LIFE = re.compile(r"A(T+[FU]|F)*(T+D|T+[BE][RX])")
_WHOLE_REPORT = re.compile(r"A(T+[FU]|F)*(T+D|T+[BE])")
"""From acceptance to the end."""
_NEVER_BEGUN = re.compile(r"(?<!T)U")


def letters(life: Sequence[Event]) -> str:
    """A life's events, a letter each."""
    return "".join(LETTERS[event["event"]] for event in life)


def is_report(life: Sequence[Event]) -> bool:
    """Whether it is that of a report."""
    return life[0].get("origin") == "report"


def may_be(life: Sequence[Event], *, damaged: bool = False) -> bool:
    """Whether a life can be so, ended or not.

    Where the journal was `damaged`, whoever may have been tried in what is lost is told of as if it had been.
    """
    told = _NEVER_BEGUN.sub("TU", letters(life)) if damaged else letters(life)
    return (_REPORT if is_report(life) else _LIFE).fullmatch(told) is not None


def is_whole(life: Sequence[Event]) -> bool:
    """Whether it can be so, and has ended."""
    return (_WHOLE_REPORT if is_report(life) else _WHOLE_LIFE).fullmatch(letters(life)) is not None


def miscounted(life: Sequence[Event]) -> Iterator[str]:
    """Attempts that do not bear their number."""
    ended = 0
    for event in life:
        verb = event["event"]
        if verb == "attempted" and event["attempt"] != ended + 1:
            yield f"attempt {event['attempt']} after {ended}: {letters(life)}"
        if verb in (*ATTEMPT_ENDS, Verb.OUTCOME_UNKNOWN):
            ended += 1
            if event["attempt"] != ended:
                yield f"the end of attempt {event['attempt']} comes as {ended}: {letters(life)}"


def in_order(events: Sequence[Event]) -> list[Event]:
    """Events in the order of their sequences."""
    return sorted(events, key=lambda event: int(event["id"].rpartition("/")[2]))


def doubled(events: Sequence[Event]) -> list[str]:
    """Ids that are there more than once; some of them."""
    ids = Counter(event["id"] for event in events)
    return [each for each, count in ids.items() if count > 1][:5]


def by_recipient(events: Sequence[Event]) -> dict[Key, list[Event]]:
    """The life of each recipient."""
    lives: dict[Key, list[Event]] = defaultdict(list)
    for event in events:
        lives[int(event["spid"], 16), event["qid"]].append(event)
    return lives
