"""Settings classes of which each value may be left to the settings around them."""

import dataclasses
from typing import Any, TypeVar

from mqcd.config.kinds.fields import NONE, Kind
from mqcd.core.value import value

Base = TypeVar("Base")
Value = TypeVar("Value")


@value(kw_only=False)
class Inherited(Kind[Value | None]):
    """A value of a kind, or None: that of the settings around. "-" is empty text, where that is a value."""

    kind: Kind[Value]
    empty: Value | None
    """What stands for nothing, where it is a text."""

    @property
    def word(self) -> str:
        return self.kind.word

    @property
    def expected(self) -> str:
        return self.kind.expected

    def parse(self, text: str) -> Value | None:
        return self.empty if text == NONE and self.empty == "" else self.kind.parse(text)

    def show(self, value: Value | None) -> str:
        if value is None:
            return ""
        return NONE if value == "" else self.kind.show(value)


def overriding(base: type[Base], settings: type[Any], name: str) -> type[Base]:
    """A class of `base`'s fields and those of `settings`, each of the latter None unless it is given."""
    kinds: dict[str, Any] = {}
    body: dict[str, Any] = {"__module__": base.__module__, "__doc__": base.__doc__, "__annotations__": kinds}
    for field in dataclasses.fields(settings):
        metadata = {**field.metadata, "kind": Inherited(field.metadata["kind"], field.default)}
        kinds[field.name] = Any
        body[field.name] = dataclasses.field(default=None, metadata=metadata)
    made: type[Base] = value(type(name, (base,), body))
    return made


def given(settings: Any, base: type[Any]) -> dict[str, Any]:
    """The values that settings of an `overriding` class state, by field, without those of its `base`."""
    own = {field.name for field in dataclasses.fields(base)}
    values = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.name not in own
    }
    return {name: value for name, value in values.items() if value is not None}
