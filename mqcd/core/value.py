"""Values: what is made once, compared as a whole, and never assigned again.

`@value` makes a class of fields that are given by keyword, compared and hashed as a whole; the type checker
sees to it that none is assigned again. Where their order is plain, `@value(kw_only=False)` lets them be
given without their names; `slots=False` is for a class that has cached properties or calls `super()`. It is
a dataclass (`fields` and `replace` of the standard library work) that is cheaper twice. One that is frozen
at run time takes four times as long to make an instance of, since it assigns each field through
`object.__setattr__`. And for such a one six methods are compiled whenever its module is imported; there are
hundreds, so that was a third of a server's start. Here only `__init__` is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

Made = TypeVar("Made")


@overload
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(made: type[Made], /) -> type[Made]: ...


@overload
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(*, kw_only: bool = True, slots: bool = True) -> Callable[[type[Made]], type[Made]]: ...


def value(made: type[Made] | None = None, /, *, kw_only: bool = True, slots: bool = True) -> Any:
    """See the module."""
    if made is None:
        return lambda made: _value(made, kw_only, slots)
    return _value(made, kw_only, slots)


def _value(plain: type[Made], kw_only: bool, slots: bool) -> type[Made]:
    if plain.__doc__ is None:
        # Or a dataclass makes one out of its signature, which takes as long as all the rest.
        plain.__doc__ = plain.__name__
    own = vars(plain)
    made = dataclass(kw_only=kw_only, slots=slots, eq=False, repr=False)(plain)
    for name, method in _methods(made).items():
        # A class that has `__eq__` of its own has been given None as its `__hash__` by Python.
        if own.get(name) is None:
            setattr(made, name, method)
    return made


def _methods(made: type[Any]) -> dict[str, Callable[..., object]]:
    compared = _all_of([each.name for each in fields(made) if each.compare])
    shown = [each.name for each in fields(made) if each.repr]

    def equal(self: object, other: object) -> object:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def hashed(self: object) -> int:
        return hash(compared(self))

    def represented(self: object) -> str:
        given = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({given})"

    return {"__eq__": equal, "__hash__": hashed, "__repr__": represented}


def _all_of(names: list[str]) -> Callable[[object], object]:
    """Gives a tuple of them, also of one: so a NaN equals itself, as in a dataclass."""
    match names:
        case []:
            return lambda _: ()
        case [name]:
            only = attrgetter(name)
            return lambda of: (only(of),)
        case _:
            return attrgetter(*names)
