"""Which calls of the control socket the API offers, and the role that each needs. Pure.

A call without a line here is not offered: some of the control socket's are for its commands alone. What a
call means and takes is described by the server (GET /v1/openapi.json), not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mqcd.page.access.tokens import Role

_SEEN = (
    "recipients", "count", "areas", "messages/{spid}", "batch", "batches", "rules", "destinations", "lanes",
    "stuck", "explain", "connections", "settings", "loglevel", "state", "trace", "events", "openapi.json",
)  # fmt: skip
_CHANGED = ("batch", "retry", "rules", "loglevel", "pause", "trace")

RIGHTS: Sequence[tuple[str, str, Role]] = (
    *(("GET", f"/v1/{path}", Role.READ) for path in _SEEN),
    ("GET", "/v1/messages/{spid}/content", Role.OPERATE),
    *(("POST", f"/v1/{path}", Role.OPERATE) for path in _CHANGED),
    ("POST", "/v1/messages", Role.INJECT),
)
"""Method, path with {name} for any text without a slash, role."""


def _patterns() -> Iterator[tuple[str, re.Pattern[str], Role]]:
    for method, path, role in RIGHTS:
        parts = re.split(r"\{[a-z]+\}", path)
        yield method, re.compile("[^/]+".join(map(re.escape, parts))), role


_PATTERNS = tuple(_patterns())


def role_of(method: str, path: str) -> Role | None:
    """The role that a call needs; None: it is not offered."""
    wanted = "GET" if method == "HEAD" else method
    return next((role for each, form, role in _PATTERNS if each == wanted and form.fullmatch(path)), None)


def methods_of(path: str) -> list[str]:
    """The methods that a path is offered for."""
    return [method for method, form, _ in _PATTERNS if form.fullmatch(path)]
