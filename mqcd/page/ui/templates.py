"""The templates of the page. Every value that is put in is escaped; one that is missing is an error."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from mqcd import __version__
from mqcd.page.access.tokens import Role
from mqcd.page.ui.formats import FILTERS

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(FILTERS)
_TEMPLATES.globals["version"] = __version__
STATIC_FILES = Path(__file__).with_name("static")


def render(template: str, request: Request, *, status: int = HTTPStatus.OK, **values: object) -> HTMLResponse:
    """A whole document, or a part of one that is loaded after it, as an answer.

    Templates have `caller` (None before the login), `csrf`, which each form for a change must carry, and
    `operates`: whether the queue may be changed. A part that says what is wrong comes with status 200 all the
    same: htmx shows no other.
    """
    if request.headers.get("hx-request"):
        status = HTTPStatus.OK
    caller = request.scope.get("state", {}).get("caller")
    own = {
        "path": request.url.path,
        "request_query": request.url.query,
        "caller": caller,
        "csrf": caller.csrf if caller is not None else "",
        "operates": caller is not None and caller.may(Role.OPERATE),
    }
    return HTMLResponse(_TEMPLATES.get_template(template).render(**own, **values), status)


def refused(request: Request, text: str, back: str, status: int = HTTPStatus.BAD_REQUEST) -> HTMLResponse:
    """Why something is not done, and a link back."""
    return render("refused.html", request, status=status, text=text, back=back)
