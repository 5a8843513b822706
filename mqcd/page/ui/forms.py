"""Forms that people send, and links with values in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mqcd.page.bounds import Refused, read_body

MOST_OCTETS = 256 << 10
"""Of a form."""
_MOST_FIELDS = 5000
"""Of a form or an address."""


class Form:
    """The values of a form, or of the query of a link, by the names of its fields."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = values

    def get(self, name: str, default: str = "") -> str:
        """One value, without blanks around it."""
        return next(iter(self._values.get(name, ())), default).strip()

    def all(self, name: str) -> Sequence[str]:
        """All values of a field that may have several."""
        return self._values.get(name, ())


async def posted(request: Request, most: int = MOST_OCTETS) -> Form:
    """What was sent, in at most so many octets. Raises Refused."""
    return _read((await read_body(request, most)).decode("latin-1"))


def asked(request: Request) -> Form:
    """What stands in the address. Raises Refused."""
    return _read(request.url.query)


def _read(text: str) -> Form:
    try:
        return Form(parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, f"more than {_MOST_FIELDS} fields") from None


def link(path: str, values: Mapping[str, str]) -> str:
    """A path with values; empty ones are left out."""
    query = urlencode({name: value for name, value in values.items() if value})
    return f"{path}?{query}" if query else path


def onwards(path: str) -> Response:
    """After a change: look at this page, and never send the form again by reloading."""
    return RedirectResponse(path, HTTPStatus.SEE_OTHER)
