"""What the page's application is made of: its routes take the parts that they need from here."""

from __future__ import annotations

import asyncio
from dataclasses import field

from starlette.requests import Request

from mqcd.core.ports import Clock
from mqcd.core.value import value
from mqcd.page.access.access import Access
from mqcd.page.client import Client
from mqcd.page.recorder import Recorder
from mqcd.page.terms import Terms


@value
class Parts:
    """Made by `serve`, or by a test from fakes."""

    terms: Terms
    client: Client
    clock: Clock
    access: Access
    recorder: Recorder
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process is to end: live answers end then."""


def parts_of(request: Request) -> Parts:
    """Those of the application, in a route."""
    found: Parts = request.app.state.parts
    return found
