"""The application over a fake server, asked as by a browser or a program."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from starlette.applications import Starlette

from mqcd.config.settings import LogSettings, PageSettings
from mqcd.disk.durable import Disk
from mqcd.page.access.access import Access
from mqcd.page.access.file import changing
from mqcd.page.access.holders import Holders
from mqcd.page.access.tokens import PREFIX, Role, Token, digest_of
from mqcd.page.api.calls import DESCRIPTION
from mqcd.page.app import make_app
from mqcd.page.client import Question
from mqcd.page.parts import Parts
from mqcd.page.recorder import Recorder
from mqcd.page.terms import Terms
from tests.fakes.clock import FakeClock
from tests.fakes.control import FakeControl, described, said

NAME = "mail.test"
AT = "2026-11-24T06:00:00.000Z"


def secret(name: str) -> str:
    """The token of this name."""
    return PREFIX + name[:1] * 43


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret(name)}"}


class OneHost:
    """Goes by one name."""

    def admits(self, field: str) -> bool:
        return field.partition(":")[0] == NAME


@dataclass
class Site:
    """One application; it has the tokens reader, operator and injector."""

    directory: Path
    page: PageSettings = field(default_factory=lambda: PageSettings(enabled=True))
    control: FakeControl = field(default_factory=FakeControl)
    clock: FakeClock = field(default_factory=FakeClock)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.tokens = self.directory / "tokens"
        roles = {"reader": Role.READ, "operator": Role.OPERATE, "injector": Role.INJECT}
        with changing(self.tokens, Disk()) as tokens:
            for name, role in roles.items():
                digest = digest_of(secret(name))
                tokens[name] = Token(name=name, roles=frozenset({role}), digest=digest, made=AT)
        self.control.answers[DESCRIPTION] = said(described())
        self.holders = Holders(self.tokens, self.clock, Disk())

    @property
    def asked(self) -> list[Question]:
        """What the server was asked, besides its description."""
        return [each for each in self.control.asked if each.path != DESCRIPTION]

    @property
    def terms(self) -> Terms:
        return Terms(
            page=self.page,
            control=Path("control.sock"),
            advice=self.directory / "advice",
            log=LogSettings(),
            hosts=OneHost(),
        )

    def app(self) -> Starlette:
        terms = self.terms
        access = Access(self.holders, self.clock, open_to_all=self.page.open, secure=terms.secure)
        recorder = Recorder(self.control, self.clock)
        parts = Parts(
            terms=terms,
            client=self.control,
            clock=self.clock,
            access=access,
            recorder=recorder,
            ended=self.ended,
        )
        return make_app(parts)

    def client(self, name: str = "") -> httpx.AsyncClient:
        """A program that shows this token; "" = none."""
        transport = httpx.ASGITransport(app=self.app())
        scheme = "http" if self.page.certfile is None else "https"
        headers = bearer(name) if name else {}
        return httpx.AsyncClient(transport=transport, base_url=f"{scheme}://{NAME}", headers=headers)
