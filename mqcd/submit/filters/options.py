"""The options of a filter: `name=value` pairs, in the text of its element. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mqcd.config.kinds.fields import BadValue, Kind

Options = Sequence[tuple[str, str]]
"""Names and values in their order; a name may come again."""


def split_options(texts: Sequence[str]) -> Options:
    """The options in `name=value` texts. Raises ValueError."""
    pairs = [text.partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f"{name!r} is no option: write name=value")
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def read_options(options: Options, kinds: Mapping[str, Kind[object]]) -> dict[str, object]:
    """The values of options that each may come once, by name. Raises ValueError."""
    found: dict[str, object] = {}
    for name, value in options:
        if name not in kinds:
            raise ValueError(f"there is no option {name!r}: expected one of {', '.join(kinds)}")
        if name in found:
            raise ValueError(f"option {name!r} is given twice")
        try:
            found[name] = kinds[name].parse(value)
        except BadValue as error:
            raise ValueError(f"option {name!r}: {error}") from error
    return found
