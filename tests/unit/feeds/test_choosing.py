"""Which events a feed wants."""

from __future__ import annotations

import json

import pytest

from mqcd.core.events import Verb
from mqcd.feeds.reader import chooser


def line(**fields: str) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("verbs", "tenants", "event", "wanted"),
    [
        ((), (), {"event": "held"}, True),
        (("bounced", "delivered"), (), {"event": "delivered"}, True),
        (("bounced",), (), {"event": "delivered"}, False),
        ((), ("acme",), {"event": "held", "tenant": "acme"}, True),
        ((), ("acme",), {"event": "held", "tenant": "acme2"}, False),
        ((), ("acme",), {"event": "held"}, False),
        (("held",), ("é", "b"), {"event": "held", "tenant": "é"}, True),
        (("held",), ("b",), {"event": "bounced", "tenant": "b"}, False),
        # What a peer has written is no field.
        ((), ("acme",), {"event": "held", "reply": '"tenant":"acme"'}, False),
        (("bounced",), (), {"event": "held", "reply": '"event":"bounced"'}, False),
    ],
)
def test_verbs_and_tenants(
    verbs: tuple[str, ...], tenants: tuple[str, ...], event: dict[str, str], wanted: bool
) -> None:
    assert chooser([Verb(verb) for verb in verbs], tenants)(line(**event)) is wanted
