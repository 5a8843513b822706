"""What a class made by `@value` is, beside a dataclass that is frozen at run time."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import pytest

from mqcd.core.value import value


@value
class Plain:
    name: str
    tries: int = 0
    secret: str = field(default="", repr=False)
    seen: int = field(default=0, compare=False)


@value(kw_only=False)
class Placed:
    one: int
    two: int = 2


@value
class Empty:
    """Has a docstring."""


@value
class More(Plain):
    last: str = ""


@value(kw_only=False)
class Alone:
    only: tuple[int, ...]


@value
class Own:
    name: str

    def __repr__(self) -> str:
        return "own"

    def __hash__(self) -> int:
        return 7


@value
class Compared:
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compared) and self.name.lower() == other.name.lower()


@value(slots=False)
class Cached:
    name: str

    @cached_property
    def long(self) -> str:
        return self.name * 2


def test_it_is_compared_and_hashed_by_its_fields() -> None:
    assert Plain(name="a") == Plain(name="a", seen=5)
    assert hash(Plain(name="a")) == hash(Plain(name="a", seen=5))
    assert Plain(name="a") != Plain(name="a", tries=1)
    assert Plain(name="a") != More(name="a")
    assert len({Alone((1,)), Alone((1,)), Alone(()), Empty(), Empty()}) == 3


def test_it_shows_its_fields_but_what_is_secret() -> None:
    assert repr(Plain(name="a", secret="word")) == "Plain(name='a', tries=0, seen=0)"
    assert repr(More(name="a")) == "More(name='a', tries=0, seen=0, last='')"
    assert repr(Empty()) == "Empty()"


def test_methods_of_its_own_stay() -> None:
    assert repr(Own(name="a")) == "own"
    assert hash(Own(name="a")) == 7
    assert Own(name="a") == Own(name="a")
    assert Compared(name="a") == Compared(name="A")
    assert hash(Compared(name="a")) == hash(Compared(name="a"))


def test_fields_are_given_by_keyword_unless_it_says_otherwise() -> None:
    with pytest.raises(TypeError, match="positional"):
        Plain("a")  # type: ignore[call-arg]
    assert Placed(1, 3) == Placed(one=1, two=3)
    match Placed(1):
        case Placed(one, two):
            assert (one, two) == (1, 2)


def test_it_has_slots_unless_it_caches() -> None:
    assert not hasattr(Plain(name="a"), "__dict__")
    with pytest.raises(AttributeError):
        Plain(name="a").misspelt = 1  # type: ignore[attr-defined]
    assert Cached(name="a").long == "aa"


def test_the_standard_library_takes_it_as_a_dataclass() -> None:
    changed = replace(Plain(name="a"), tries=2)
    assert (changed.name, changed.tries) == ("a", 2)
    assert [each.name for each in fields(More)] == ["name", "tries", "secret", "seen", "last"]
    assert pickle.loads(pickle.dumps(changed)) == changed == copy.deepcopy(changed)
    assert Empty.__doc__ == "Has a docstring."


def test_it_is_as_equal_as_a_dataclass() -> None:
    @dataclass(frozen=True)
    class Usual:
        number: float
        row: tuple[object, ...] = ()

    @value(kw_only=False)
    class Ours:
        number: float
        row: tuple[object, ...] = ()

    @dataclass(frozen=True)
    class UsualAlone:
        number: float

    @value(kw_only=False)
    class OursAlone:
        number: float

    none = float("nan")
    pairs = [(none, none), (1, 1.0), (1, 2), (0.0, -0.0), (float("nan"), float("nan")), (True, 1)]
    for one, other in pairs:
        assert (Usual(one) == Usual(other)) == (Ours(one) == Ours(other))
        assert (UsualAlone(one) == UsualAlone(other)) == (OursAlone(one) == OursAlone(other))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours(1, ([],)))
