"""Which events a feed wants: by verb, and by tenant. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection

from mqcd.core.events import Verb
from mqcd.feeds.reader import Chooses


def chooses(verbs: Collection[Verb], tenants: Collection[str]) -> Chooses:
    """None of either = all of them."""
    wanted = tuple(f'"event":"{verb}"'.encode() for verb in verbs)
    names = tuple(f'"tenant":{json.dumps(name, ensure_ascii=False)}'.encode() for name in tenants)

    def wants(line: bytes) -> bool:
        if wanted and not any(each in line for each in wanted):
            return False
        # A text that holds this has its quotes escaped: only the field itself matches.
        return not names or any(each in line for each in names)

    return wants
