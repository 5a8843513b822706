"""What the page's process is given by the one that starts it. Plain data: it travels between them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from mqcd.config.settings import LogSettings, PageSettings
from mqcd.core.value import value


class Hosts(Protocol):
    """The names that this machine answers under."""

    def admits(self, field: str) -> bool:
        """Whether a Host field names this machine."""


@value
class Terms:
    """The settings of the page, and those of the server that it needs."""

    page: PageSettings
    control: Path
    """The server's control socket."""
    advice: Path
    """Directory of the advice files."""
    log: LogSettings
    hosts: Hosts

    @property
    def secure(self) -> bool:
        """Whether it is served over TLS."""
        return self.page.certfile is not None
