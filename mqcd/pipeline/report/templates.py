"""The templates of the report. Jinja2 escapes every value that is put in.

Characters that are not seen but change how others are shown (controls, bidirectional overrides) are shown by
their number, as [U+202E], so that a stranger's reply looks like what it is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def visible(text: str) -> str:
    """The same, with unseen characters by number."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"[U+{ord(c):04X}]" if unicodedata.category(c) in _HIDDEN else c for c in text)


def _shown(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_shown,
)


def macro(template: str, name: str) -> Callable[..., Markup]:
    """A macro of a template, to be called from Python."""
    found: Callable[..., Markup] = getattr(_TEMPLATES.get_template(template).module, name)
    return found


def render(template: str, **values: Any) -> str:
    """A whole document."""
    return _TEMPLATES.get_template(template).render(**values)
