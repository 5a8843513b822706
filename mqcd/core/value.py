"""Values that are made several times for each message.

`@value` makes a class of fields that are given by keyword, compared and hashed as a whole, and never assigned
again: the type checker sees to that. A dataclass that is frozen at run time as well takes four times as long
to make, since it assigns each field through `object.__setattr__`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Made = TypeVar("Made")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(made: type[Made]) -> type[Made]:
    """See the module."""
    return dataclass(kw_only=True, slots=True, unsafe_hash=True)(made)
