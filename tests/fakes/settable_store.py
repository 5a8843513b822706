"""A store with settings of every kind that a configuration can give."""

from __future__ import annotations

from pathlib import Path

from mqcd.core.errors import ConfigError
from mqcd.stores.mapping import MappingStore


class SettableStore(MappingStore):
    """Mail in a dict."""

    def __init__(
        self,
        *,
        rootpath: Path,
        wait_ms: int = 1,
        part_octets: int = 2,
        most: int = 3,
        share: float = 0.5,
        eager: bool = False,
        password_file: Path | None = None,
        name: str = "",
        factory: object = None,
    ) -> None:
        super().__init__()
        if name == "refused":
            raise ConfigError("that name is refused")
        self.given = (rootpath, wait_ms, part_octets, most, share, eager, password_file, name)


class NeedsMore(MappingStore):
    """A store whose library is not installed."""

    def __init__(self) -> None:
        raise ImportError("No module named 'more'")
