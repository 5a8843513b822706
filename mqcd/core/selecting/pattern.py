"""Shell patterns over texts, as selections take them. Pure. Case never matters.

A text with `*` or `?` in it is a pattern: `[ab]` then stands for one of several characters, and `[[]` for a
bracket. Any other text compares as a whole, with the brackets of an address literal as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache


def fits(wanted: str, text: str) -> bool:
    """Whether a text is the wanted one, or matches it as a shell pattern."""
    return matcher(wanted)(text.lower())


@lru_cache(maxsize=64)
def matcher(wanted: str) -> Callable[[str], bool]:
    """The same for many texts, in lower case each."""
    lowered = wanted.lower()
    if not {"*", "?"} & {*lowered}:
        return lowered.__eq__
    pattern = re.compile(translate(lowered))
    return lambda text: pattern.match(text) is not None
