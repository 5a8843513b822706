"""HTML that is safe because of how it is made: what is not `Markup` is escaped where it is put in. Pure.

Characters that are not seen but change how others are (controls, bidirectional overrides, invisible ones)
are shown by their number, as [U+202E], so that a stranger's reply looks like what it is.
"""

from __future__ import annotations

import html
import unicodedata

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_VOID = frozenset(("meta", "link", "br", "col"))


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def visible(text: str) -> str:
    """The same, with unseen characters by number."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"[U+{ord(c):04X}]" if unicodedata.category(c) in _HIDDEN else c for c in text)


def text(value: str) -> Markup:
    """As HTML, in elements and in attributes."""
    return value if isinstance(value, Markup) else Markup(html.escape(visible(value)))


def tag(name: str, /, *children: str, **attributes: str | None) -> Markup:
    """An element. In attribute names a trailing `_` is dropped and others become `-`; None leaves one out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{''.join(map(text, children))}</{name}>")


def joined(*parts: str) -> Markup:
    """One after the other."""
    return Markup("".join(map(text, parts)))


def stranger(value: str, most: int = 160) -> Markup:
    """What somebody else has written: kept apart from the direction of what stands around it, and cut."""
    shown = value if len(value) <= most else value[: most - 1] + "…"
    return tag("bdi", shown, title=value if shown != value else None)
