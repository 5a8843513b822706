"""The look-up in a state table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import pytest

from mqcd.core.errors import IllegalTransition
from mqcd.core.states import following


class Light(Enum):
    GREEN = auto()
    RED = auto()


class Signal(Enum):
    STOP = auto()
    GO = auto()


TABLE: Mapping[Light, Mapping[Signal, Light]] = {
    Light.GREEN: {Signal.STOP: Light.RED},
    Light.RED: {Signal.GO: Light.GREEN},
}


def test_the_table_says_what_follows() -> None:
    assert following(TABLE, Light.GREEN, Signal.STOP, "light") is Light.RED


def test_what_the_table_does_not_have_is_a_fault_that_names_it() -> None:
    with pytest.raises(IllegalTransition, match=r"^light 7: .*GREEN.*GO"):
        following(TABLE, Light.GREEN, Signal.GO, "light 7")
