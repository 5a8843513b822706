"""State tables: what follows on what. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from mqcd.core.errors import IllegalTransition

Row = TypeVar("Row", bound=Enum)
Column = TypeVar("Column", bound=Enum)
Following = TypeVar("Following")


def following(
    table: Mapping[Row, Mapping[Column, Following]], row: Row, column: Column, of: object
) -> Following:
    """The state that follows, of a table by event and state, or by state and event. Raises IllegalTransition
    where it has none; its text names `of`."""
    try:
        return table[row][column]
    except KeyError:
        raise IllegalTransition(f"{of}: nothing follows on {row.name} and {column.name}") from None
