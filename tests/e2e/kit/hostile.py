"""A working directory in which somebody has put modules for others to import."""

from __future__ import annotations

import sys
from pathlib import Path

NAMES = (
    "mqcd",
    "pyspark",
    "asyncio",
    "pickle",
    "json",
    "lxml",
    "click",
    "sitecustomize",
    "mqcd.queue",
    "mqcd.queue.helper.helper",
)
_MARK = "imported-"


def hostile_directory(parent: Path) -> Path:
    """Packages of these names; each leaves a mark when it is imported."""
    directory = parent / "hostile"
    for name in NAMES:
        package = directory / name.replace(".", "/")
        package.mkdir(parents=True, exist_ok=True)
        mark = directory / f"{_MARK}{name}"
        (package / "__init__.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    return directory


def imported_from(directory: Path) -> list[str]:
    """What was imported from it."""
    return sorted(path.name.removeprefix(_MARK) for path in directory.glob(f"{_MARK}*"))


def script(name: str) -> str:
    """The command that an installation puts on the PATH; unlike `-m` it leaves the working directory out."""
    return str(Path(sys.executable).with_name(name))
