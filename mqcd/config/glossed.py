"""Fields of settings classes that say what they mean: a default, a gloss, and how to find both again."""

import dataclasses
from typing import Any, TypeVar

Value = TypeVar("Value")


def setting(default: Value, gloss: str, held: str = "") -> Value:
    """A dataclass field with its default, and its gloss: a phrase that says what it means.

    `held` is the unit of the value here, where a file may write it otherwise (`1h30m`, `10%`).
    """
    return dataclasses.field(default=default, metadata={"gloss": gloss, "held": held})


def gloss_of(block: type[Any], attribute: str) -> str:
    """The gloss of one field of a settings class; "" for a field that holds a block of its own."""
    fields = {field.name: field for field in dataclasses.fields(block)}
    return str(fields[attribute].metadata.get("gloss", ""))


def default_of(block: type[Any], attribute: str) -> Any:
    """The default of one field of a settings class, tokens not yet replaced."""
    fields = {field.name: field for field in dataclasses.fields(block)}
    return fields[attribute].default
