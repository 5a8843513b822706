"""The kinds of value that a configuration holds, each with its reading, its writing and its words.

Numbers, texts, paths and lists stand here; what names machines and people stands in `names`.

Promise: for every value that a kind can hold, `parse(show(value)) == value`. Two differ: a secret is shown as
a mask or not at all, and None of `overriding.Inherited` as nothing, which the reader takes as left out.
`parse` raises `BadValue` and nothing else, and `expected` finishes the sentence "expected ...". Tokens such
as %DIRVAR% are replaced before a kind sees the text. No IO: a host name is not looked up, a path need not
exist.
"""

import abc
import enum
import pathlib
import re
from typing import Generic, TypeVar

from mqcd.config.kinds.values import Rate
from mqcd.core.errors import ConfigError
from mqcd.core.units import DAY, OCTETS, TIMES, YEAR, duration_of, size_of
from mqcd.core.value import value

Value = TypeVar("Value")
EnumValue = TypeVar("EnumValue", bound=enum.Enum)

NONE = "-"
"""The text that says "none" where nothing would say "the default"."""

LARGEST = 2**63 - 1
_SHOWN = 200
"""Characters of a bad value that its error shows."""


class BadValue(ConfigError):
    """A text is not what its kind expects. Carries no place: only the reader of the file knows it."""


def shown(text: str) -> str:
    """A text in quotes, cut to what a line of a terminal may show."""
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f'"{cut}"' if cut.isprintable() else ascii(cut)


class Kind(abc.ABC, Generic[Value]):
    """One kind of value."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def word(self) -> str:
        """The kind in a word, for tables."""

    @property
    @abc.abstractmethod
    def expected(self) -> str:
        """What a text of this kind looks like, with an example."""

    @abc.abstractmethod
    def parse(self, text: str) -> Value:
        """The value of a text, blanks at its ends removed. Raises BadValue."""

    def show(self, value: Value) -> str:
        """A text that parses to this value; the one that a person would write."""
        return str(value)

    def refuse(self, text: str) -> BadValue:
        """The error for a text that does not fit."""
        return BadValue(f"{shown(text)} does not fit: expected {self.expected}")


WORDS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}

# ASCII, or case folding would take the Kelvin sign for a K. 19 digits hold the largest value.
_NUMBER = re.compile(r"([0-9]{1,19})([KMG]?)", re.IGNORECASE | re.ASCII)


@value(kw_only=False)
class Bounded(Kind[int]):
    """A number from `least` to `most`."""

    least: int = 0
    most: int = LARGEST

    @abc.abstractmethod
    def read(self, text: str) -> int | None:
        """The number that a text says, within the bounds or not; None if it says none."""

    def parse(self, text: str) -> int:
        value = self.read(text)
        if value is None or not self.least <= value <= self.most:
            raise self.refuse(text)
        return value

    @property
    def bounds(self) -> str:
        """The end of the sentence that says what is expected."""
        lower = f", at least {self.show(self.least)}" if self.least else ""
        upper = f", at most {self.show(self.most)}" if self.most < LARGEST else ""
        return lower + upper


@value(kw_only=False)
class Size(Bounded):
    """Octets."""

    word = "size"

    @property
    def expected(self) -> str:
        return f"a whole number of octets, or of K, M or G (256K is 262144){self.bounds}"

    def read(self, text: str) -> int | None:
        return size_of(text)

    def show(self, value: int) -> str:
        for unit, factor in OCTETS.items():
            if value and value % factor == 0:
                return f"{value // factor}{unit}"
        return str(value)


@value(kw_only=False)
class Duration(Bounded):
    """Milliseconds."""

    word = "time"

    @property
    def expected(self) -> str:
        return (
            "whole numbers of w, d, h, m, s or ms, from large to small (1h30m), or a bare number "
            f"of milliseconds{self.bounds}"
        )

    def read(self, text: str) -> int | None:
        return duration_of(text)

    def show(self, value: int) -> str:
        parts = []
        # Weeks are read and not written: Mailismus does not know them. Up to three days, people count hours.
        first = 1 if value > 3 * DAY else 2
        for unit, factor in list(TIMES.items())[first:]:
            count, value = divmod(value, factor)
            if count:
                parts.append(f"{count}{unit}")
        return "".join(parts) or "0"


DELAY = Duration(least=1, most=YEAR)
"""The time between two attempts."""


@value(kw_only=False)
class Count(Bounded):
    """A number of things. K, M and G are taken, as Mailismus takes them for some of its counts."""

    word = "number"

    @property
    def expected(self) -> str:
        if self.most < LARGEST:
            return f"a whole number from {self.least} to {self.most}"
        return f"a whole number, at least {self.least}"

    def read(self, text: str) -> int | None:
        form = _NUMBER.fullmatch(text)
        return int(form[1]) * OCTETS.get(form[2].upper(), 1) if form is not None else None


AUTO = "auto"


# `slots=False` as it calls `super()`, see `core.value`.
@value(kw_only=False, slots=False)
class AutoCount(Count):
    """A number of things, or 0 for as many as suit the machine."""

    word = "number or auto"

    @property
    def expected(self) -> str:
        return f"auto, or {super().expected}"

    def parse(self, text: str) -> int:
        return 0 if text.lower() == AUTO else super().parse(text)

    def show(self, value: int) -> str:
        return str(value) if value else AUTO


@value(kw_only=False)
class RateKind(Kind[Rate]):
    """So many in a time."""

    word = "rate"
    expected = "a whole number, at least 1, and the time it is for: 10/s, 500/h, 20/1m30s"

    def parse(self, text: str) -> Rate:
        count, slash, time = (part.strip() for part in text.partition("/"))
        spelled = time if time[:1].isdigit() else f"1{time}"
        try:
            rate = Rate(count=Count(least=1).parse(count), per=Duration(least=1).parse(spelled))
        except BadValue:
            raise self.refuse(text) from None
        if not slash or not re.search("[a-z]", time, re.IGNORECASE):
            raise self.refuse(text)
        return rate

    def show(self, value: Rate) -> str:
        time = Duration().show(value.per)
        return f"{value.count}/{time[1:] if re.fullmatch('1[a-z]+', time) else time}"


@value(kw_only=False)
class Percent(Kind[int]):
    """A share of a whole, 0 to 100."""

    word = "percentage"
    expected = "a whole number from 0% to 100%"

    def parse(self, text: str) -> int:
        form = re.fullmatch(r"([0-9]{1,3}) ?%?", text)
        if form is None or int(form[1]) > 100:
            raise self.refuse(text)
        return int(form[1])

    def show(self, value: int) -> str:
        return f"{value}%"


@value(kw_only=False)
class Boolean(Kind[bool]):
    """Yes or no."""

    word = "Y or N"
    expected = "Y or N (also yes, no, true, false)"

    def parse(self, text: str) -> bool:
        word = WORDS.get(text.lower())
        if word is None:
            raise self.refuse(text)
        return word

    def show(self, value: bool) -> str:
        return "Y" if value else "N"


@value(kw_only=False)
class Choice(Kind[EnumValue]):
    """One of the members of an enumeration, by value."""

    members: type[EnumValue]

    word = "choice"

    @property
    def expected(self) -> str:
        return "one of " + ", ".join(str(member.value) for member in self.members)

    def parse(self, text: str) -> EnumValue:
        for member in self.members:
            if member.value == text.lower():
                return member
        raise self.refuse(text)

    def show(self, value: EnumValue) -> str:
        return str(value.value)


@value(kw_only=False)
class Line(Kind[str]):
    """Text of one line; runs of blanks and line ends count as one blank. "-" is the empty text."""

    word = "text"
    expected = "a line of text without control characters"

    def parse(self, text: str) -> str:
        line = " ".join(text.split())
        if not line.isprintable():
            raise self.refuse(text)
        return "" if line == NONE else line

    def show(self, value: str) -> str:
        return value or NONE


@value(kw_only=False)
class Text(Kind[str]):
    """Text of any number of lines. "-" is the empty text."""

    word = "text"
    expected = "text without control characters other than line ends and tabs"

    def parse(self, text: str) -> str:
        # A peer may see a line end in each of them, and CR is one where it cannot be seen.
        lines = text.strip().replace("\r\n", "\n").split("\n")
        if not all(line.replace("\t", "").isprintable() for line in lines):
            raise self.refuse(text)
        stripped = "\n".join(lines)
        return "" if stripped == NONE else stripped

    def show(self, value: str) -> str:
        return value or NONE


@value(kw_only=False)
class FilePath(Kind[pathlib.Path]):
    """A path; one that is not absolute counts from the directory of the configuration file."""

    word = "path"
    expected = "a path, with %DIRVAR%, %DIRCONF%, %DIRLOG%, %DIRTMP% or %SYSNAME% where wanted"

    def parse(self, text: str) -> pathlib.Path:
        if not text or "\x00" in text:
            raise self.refuse(text)
        return pathlib.Path(text)


@value(kw_only=False)
class Optional(Kind[Value | None]):
    """A value, or none: nothing or "-"."""

    kind: Kind[Value]

    @property
    def word(self) -> str:
        return self.kind.word

    @property
    def expected(self) -> str:
        return f"{self.kind.expected}, or - for none"

    def parse(self, text: str) -> Value | None:
        return None if text in ("", NONE) else self.kind.parse(text)

    def show(self, value: Value | None) -> str:
        return NONE if value is None else self.kind.show(value)


@value(kw_only=False)
class Listed(Kind[tuple[Value, ...]]):
    """Values of one kind in a row, `|` between them (some of Mailismus's attributes: a comma)."""

    kind: Kind[Value]
    separator: str = "|"
    least: int = 0

    @property
    def word(self) -> str:
        return f"list, {self.kind.word}"

    @property
    def expected(self) -> str:
        none = "" if self.least else ", or - for none"
        return f'"{self.separator}" between values that are each {self.kind.expected}{none}'

    def parse(self, text: str) -> tuple[Value, ...]:
        items = [] if text == NONE else [item.strip() for item in text.split(self.separator)]
        other = "," if self.separator == "|" else "|"
        try:
            values = tuple(self.kind.parse(item) for item in items if item)
        except BadValue:
            if other in text:
                hint = f'write "{self.separator}" between values, not "{other}"'
                raise BadValue(f"{shown(text)}: {hint}") from None
            raise
        if len(values) < self.least:
            raise self.refuse(text)
        return values

    def show(self, value: tuple[Value, ...]) -> str:
        blank = "" if self.separator == "," else " "
        text = f"{blank}{self.separator} ".join(self.kind.show(item) for item in value)
        # One empty text in a list is not the empty list.
        return f"{text}{blank}{self.separator}" if text == NONE else text or NONE


YES_NO = Boolean()
PORT = Count(most=65535)
