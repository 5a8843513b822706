"""The templates of the page. Every value that is put in is escaped; one that is missing is an error."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
STATIC = Path(__file__).with_name("static")


def render(template: str, *, status: int = 200, **values: object) -> HTMLResponse:
    """A whole document as an answer."""
    return HTMLResponse(_TEMPLATES.get_template(template).render(**values), status)
