"""Help with conditions (`where`): what is wrong with one, and what may come next at the cursor. Pure.

The grammar is that of `core.selecting.where`; here a text that is not finished is read as far as it goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mqcd.core.errors import DecodeError
from mqcd.core.model import Area
from mqcd.core.selecting.where import parse_where
from mqcd.core.selecting.where_fields import FIELDS, LIVE
from mqcd.core.smtp.classes import OutcomeClass
from mqcd.core.value import value

MOST = 30
"""Suggestions at once."""
MOST_TEXT = 8000
"""Characters of a condition."""
_COLUMN = re.compile(r"column (\d+): ")
_TOKEN = re.compile(
    r"""\s+|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|!=|[=~<>!]|[(),]|[^\s"'(),=!~<>]+""", re.DOTALL
)
_BARE = re.compile(r"[^\s\"'(),=!~<>]+")
_GLOSSES: Mapping[str, str] = {
    "spid": "one message",
    "sender": "reverse-path",
    "sender-domain": "of the reverse-path",
    "recipient": "address",
    "domain": "of the recipient",
    "site": "the servers it goes to",
    "area": "where it rests",
    "zone": "it goes out by",
    "header-zone": "that its header chose",
    "route": "next hop that an operator chose",
    "listener": "that took it",
    "user": "who sent it, logged in",
    "tenant": "customer",
    "client": "address or network",
    "age": "time since acceptance",
    "due": "time until the next attempt",
    "attempts": "so far",
    "code": "of the last reply",
    "status": "enhanced code of the last reply",
    "reply": "text of the last reply",
    "class": "subject of the last reply",
    "size": "of the message",
    "tag": "of the message",
    "hold": "name that it was given to be held",
    "message-id": "of the header",
    "list-id": "of the header",
}
_OPS: Mapping[str, str] = {
    "=": "is",
    "!=": "is not",
    "~": "matches a pattern, such as *@example.org",
    "<": "less than",
    ">": "more than",
    "in": "one of several, with commas",
}
_VALUES: Mapping[str, Sequence[str]] = {
    "area": [area.value for area in Area],
    "class": [each.value for each in OutcomeClass],
    "age": ("10m", "1h", "4h", "1d", "2d"),
    "due": ("0s", "10m", "1h", "4h"),
    "size": ("100K", "1M", "10M"),
    "attempts": ("1", "5", "10"),
    "code": ("421", "450", "451", "452"),
}


@value
class Problem:
    """What is wrong with a condition."""

    text: str
    column: int
    """Where, from 1; 0 = nowhere in particular."""


@value
class Suggestion:
    """What may stand at the cursor."""

    text: str
    gloss: str
    start: int
    """The characters from here to the cursor are replaced by it."""


def problem(text: str, now: int) -> Problem | None:
    """None: nothing is wrong. An empty condition selects all."""
    if len(text) > MOST_TEXT:
        return Problem(text=f"expected at most {MOST_TEXT} characters", column=0)
    try:
        if text:
            parse_where(text, now, live=True)
    except DecodeError as error:
        found = _COLUMN.match(str(error))
        return Problem(text=_COLUMN.sub("", str(error)), column=int(found[1]) if found else 0)
    return None


def suggestions(text: str, at: int, known: Mapping[str, Iterable[str]]) -> Sequence[Suggestion]:
    """What may stand at the cursor `at`; `known`: values that fields are known to have."""
    before = text[:at]
    tokens = [found[0] for found in _TOKEN.finditer(before)]
    begun = tokens.pop() if tokens and _is_word(tokens[-1]) else ""
    start = len(before) - len(begun)
    typed = begun.strip("\"'").lower()
    candidates = _next([each for each in tokens if not each.isspace()], known)
    chosen = [(word, gloss) for word, gloss in candidates if typed in word.lower() and word.lower() != begun]
    chosen.sort(key=lambda each: not each[0].lower().startswith(typed))
    return [Suggestion(text=quoted(word), gloss=gloss, start=start) for word, gloss in chosen[:MOST]]


def _is_word(token: str) -> bool:
    return not token.isspace() and (token[0] in "\"'" or _BARE.fullmatch(token) is not None)


def _next(tokens: Sequence[str], known: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """What may follow whole tokens, each with its meaning."""
    state, field = "field", ""
    for token in tokens:
        state, field = _after(state, field, token.lower())
    if state == "field":
        yield from ((name, _GLOSSES.get(name, "")) for name in FIELDS)
        yield "not", "the contrary of what follows"
    elif state == "op" and (found := FIELDS.get(field) or LIVE.get(field)) is not None:
        yield from ((op, _OPS.get(op, "")) for op in found.kind.ops)
    elif state == "value":
        values = [*_VALUES.get(field, ()), *known.get(field, ())]
        yield from ((value, "") for value in dict.fromkeys(values))
    elif state == "join":
        yield from (("and", "both"), ("or", "at least one"))


def _after(state: str, field: str, word: str) -> tuple[str, str]:
    """The state that a word leads to, and the field that it is about."""
    if state == "field":
        return (state, field) if word in ("not", "(") else ("op", word)
    if state == "op":
        return "value", field
    if state == "value":
        return (state, field) if word == "(" else ("join", field)
    following = {"and": "field", "or": "field", ",": "value"}
    return following.get(word, "join"), field


def quoted(word: str) -> str:
    """A value as conditions have it."""
    if _BARE.fullmatch(word) or word in _OPS:
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def of_picked(picked: Iterable[str]) -> str:
    """The condition that selects recipients given as `SPID address`."""
    parts = []
    for each in picked:
        spid, _, address = each.partition(" ")
        parts.append(f"spid = {quoted(spid)} and recipient = {quoted(address)}")
    return parts[0] if len(parts) == 1 else " or ".join(f"({each})" for each in parts)
