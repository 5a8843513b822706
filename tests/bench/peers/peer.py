"""What a peer is: how it is installed, configured, started and asked what it holds."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".test/peers"
"""Where packages of npm and PyPI are installed."""
SIZE_LIMIT = 64 << 20


@dataclass(frozen=True)
class Plan:
    """What a peer is to run with."""

    directory: Path
    """Of its own, empty, on a disk."""
    port: int
    """Where it takes mail."""
    sink: int
    """Where it relays all mail to."""
    ops: int
    """A port for its own use."""


@dataclass(frozen=True)
class Start:
    """A command that stays in the foreground."""

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    user: int | None = None


class Peer(abc.ABC):
    """A mail server. Subclasses are entries of `peers.PEERS`."""

    name = ""
    promise = ""
    """What is safe before 250."""
    forwards = False
    """Whether 250 waits for the next hop: such a server has no queue."""

    @abc.abstractmethod
    def install(self) -> None:
        """Fetch what is needed, where network is. Raises LookupError with the reason if that fails."""

    def version(self) -> str:
        """Of the installed server."""
        return ""

    @abc.abstractmethod
    def prepare(self, plan: Plan) -> Start:
        """Write its configuration."""

    def ready(self, plan: Plan) -> bool:
        """Whether it takes mail, beyond greeting."""
        return True

    def waiting(self, plan: Plan, pid: int) -> int | None:
        """Messages or recipients in its queue; None where that cannot be seen."""
        return None

    def ledger(self, plan: Plan, deferred: int) -> str:
        """What does not balance in its own account, while it runs; "" = nothing."""
        return ""

    def audit(self, plan: Plan) -> str:
        """What is wrong with its files after its end; "" = nothing."""
        return ""


def shared(path: Path) -> Path:
    """The same path, readable by any user."""
    path.chmod(0o755)
    return path


def files(directory: Path, pattern: str) -> int:
    """Files below a directory."""
    return sum(path.is_file() for path in directory.rglob(pattern))
