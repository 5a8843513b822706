"""A filter that removes and adds header fields.

    <filter class="mqcd.submit.filters.headers:Headers">remove=X-Internal-* | add=X-Site: berlin</filter>

`remove` names fields by a shell pattern, without regard to case; `add` puts a field at the top of the
message. Each may come again. What is to be removed goes first, so `remove=X | add=X: y` replaces a field.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from aiosmtpd.smtp import MISSING

from mqcd.submit.filters.fields import check_name, field, without
from mqcd.submit.filters.options import Options


class Headers:
    """One listener's."""

    def __init__(self, removed: list[str], added: bytes) -> None:
        """`removed`: patterns in lower case; `added`: header fields."""
        self._removed = removed
        self._added = added

    @classmethod
    def from_options(cls, options: Options) -> Headers:
        """Raises ValueError for options that cannot be."""
        removed: list[str] = []
        added: list[bytes] = []
        for name, value in options:
            if name == "remove":
                removed.append(check_name(value).lower())
            elif name == "add":
                head, colon, text = value.partition(":")
                if not colon:
                    raise ValueError(f"add={value!r} is no header field: write add=Name: value")
                added.append(field(head.strip(), text.strip()))
            else:
                raise ValueError(f"there is no option {name!r}: expected add or remove")
        if not (removed or added):
            raise ValueError("nothing to do: give add=Name: value or remove=Name")
        return cls(removed, b"".join(added))

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> Any:  # noqa: N802
        """Change the content."""
        envelope.content = self._added + without(envelope.content, self._drops)
        return MISSING

    def _drops(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._removed)
