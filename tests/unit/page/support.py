"""The application over a fake server, asked as by a browser or a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import httpx

from mqcd.config.settings import LogSettings, PageSettings
from mqcd.page.app import make_app
from mqcd.page.parts import Parts
from mqcd.page.terms import Terms
from tests.fakes.clock import FakeClock
from tests.fakes.control import FakeControl

NAME = "mail.test"


class OneHost:
    """Goes by one name."""

    def admits(self, field: str) -> bool:
        return field.partition(":")[0] == NAME


@dataclass
class Site:
    """One application."""

    page: PageSettings = field(default_factory=lambda: PageSettings(enabled=True))
    control: FakeControl = field(default_factory=FakeControl)
    clock: FakeClock = field(default_factory=FakeClock)

    def client(self) -> httpx.AsyncClient:
        terms = Terms(page=self.page, control=Path("control.sock"), log=LogSettings(), hosts=OneHost())
        app = make_app(Parts(terms=terms, client=self.control, clock=self.clock))
        transport = httpx.ASGITransport(app=app)
        return httpx.AsyncClient(transport=transport, base_url=f"http://{NAME}")
