"""The templates of the page. Every value that is put in is escaped; one that is missing is an error."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
STATIC_FILES = Path(__file__).with_name("static")


def render(template: str, request: Request, *, status: int = 200, **values: object) -> HTMLResponse:
    """A whole document as an answer.

    Templates have `caller` (None before the login), and `csrf`, which each form for a change must carry.
    """
    caller = request.scope.get("state", {}).get("caller")
    own = {"caller": caller, "csrf": caller.csrf if caller is not None else ""}
    return HTMLResponse(_TEMPLATES.get_template(template).render(**own, **values), status)
