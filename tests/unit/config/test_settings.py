"""The settings classes: never assigned again, glossed, defaulted; and the schema that covers them whole."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from mqcd.config.blocks import Block, Many, Row
from mqcd.config.schema import ROOT, ROWS
from mqcd.config.settings import (
    AuthSettings,
    DestinationSettings,
    HeldDomainSettings,
    ListenerSettings,
    PrioritySettings,
    QuotaSettings,
    RelaySettings,
    RemoteNetSettings,
    ReplyRuleSettings,
    SenderRightSettings,
    SenderSettings,
    ServerNetworkSettings,
    Settings,
    ShardSettings,
    SslSettings,
    WebhookSettings,
    ZoneMatchSettings,
    ZoneSettings,
)


def classes(settings: Any) -> Iterator[type[Any]]:
    """The class of a settings value and of every block inside it."""
    yield type(settings)
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        for inner in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(inner):
                yield from classes(inner)


def own_fields(cls: type[Any]) -> Iterator[dataclasses.Field[Any]]:
    """The fields of a class that hold values and not blocks."""
    return (field for field in dataclasses.fields(cls) if "gloss" in field.metadata)


def lists(block: Block) -> Iterator[Many]:
    """The lists in a block, with those in their items."""
    for entry in block.entries:
        if isinstance(entry, Many):
            yield entry
        if not isinstance(entry, Row):
            yield from lists(entry.item if isinstance(entry, Many) else entry)


ALL: set[type[Any]] = {
    *classes(Settings()),
    *classes(ListenerSettings()),
    RelaySettings,
    AuthSettings,
    SslSettings,
    RemoteNetSettings,
    ZoneSettings,
    ZoneMatchSettings,
    DestinationSettings,
    HeldDomainSettings,
    PrioritySettings,
    SenderRightSettings,
    ReplyRuleSettings,
    SenderSettings,
    QuotaSettings,
    ServerNetworkSettings,
    ShardSettings,
    WebhookSettings,
}


@pytest.mark.parametrize("cls", sorted(ALL, key=str))
def test_settings_are_slotted_and_all_have_defaults(cls: type[Any]) -> None:
    value = cls()
    assert hash(value) == hash(cls())
    assert not hasattr(value, "__dict__")


def filled(block: Block) -> Iterator[tuple[type[Any] | None, str]]:
    for entry in block.entries:
        if isinstance(entry, Row):
            yield block.fills, entry.attribute
        else:
            yield from filled(entry if isinstance(entry, Block) else entry.item)


def test_the_schema_fills_every_field() -> None:
    held = {(cls, field.name) for cls in ALL for field in own_fields(cls)}
    assert set(filled(ROOT)) == held


@pytest.mark.parametrize("path", ROWS)
def test_every_setting_says_what_it_means(path: str) -> None:
    assert ROWS[path].gloss


def test_the_items_of_a_list_by_default_have_their_defaults() -> None:
    """`Reader._many` makes them so."""
    listed = {many.attribute: many for many in lists(ROOT)}
    assert listed["listeners"].default
    assert all(each == type(each)() for many in listed.values() for each in many.default)
