"""The packages of the extra `page`, looked for without loading them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from mqcd.core.errors import ConfigError

_NEEDS = ("starlette", "uvicorn", "h11", "jinja2")


def check_packages(find: Callable[[str], object] = find_spec) -> None:
    """Raises ConfigError where one is missing, with the command that installs it."""
    missing = [name for name in _NEEDS if find(name) is None]
    if missing:
        text = f"ops/page: {' and '.join(missing)} is missing: the page needs its extra"
        raise ConfigError(f"{text}: pip install 'mqcd[page]', or set enabled=\"N\"")
