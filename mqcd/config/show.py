"""Settings -> the XML that loads to the same settings: for `mqcd check`, and for the file that is shipped.

Written from the schema, every setting in its place, so nothing can be left out. Secrets: no setting holds
one, keys are named by their file; an element that asks for a password is refused, never shown.
"""

import html
from collections.abc import Iterator
from typing import Any

from mqcd.config.schema import ROOT, Block, Many, Place, Row
from mqcd.config.settings import Settings, default_of

_STEP = "  "


def as_xml(settings: Settings, *, glosses: bool = False) -> str:
    """The settings as a file; with `glosses`, what each one means stands above it as a comment."""
    return "\n".join(_block(ROOT, settings, "", glosses)) + "\n"


def _block(block: Block, values: Any, indent: str, glosses: bool) -> Iterator[str]:
    """The lines of one block. `values` are the settings that its rows are in."""
    rows = [entry for entry in block.entries if isinstance(entry, Row)]
    own = [entry for entry in rows if not entry.element]
    if glosses:
        yield from (f"{indent}<!-- {entry.name}: {_gloss(block, entry)} -->" for entry in own)
    tag = block.name + "".join(f" {_attribute(block, entry, values)}" for entry in own)
    inner = list(_inside(block, values, indent + _STEP, glosses))
    if inner:
        yield from (f"{indent}<{tag}>", *inner, f"{indent}</{block.name}>")
    else:
        yield f"{indent}<{tag}/>"


def _inside(block: Block, values: Any, indent: str, glosses: bool) -> Iterator[str]:
    for entry in block.entries:
        if isinstance(entry, Many):
            yield from _many(block, entry, values, indent, glosses)
        elif isinstance(entry, Block):
            inner = values if entry.fills is None else getattr(values, entry.attribute)
            yield from _block(entry, inner, indent, glosses)
        elif entry.element:
            if glosses:
                yield f"{indent}<!-- {_gloss(block, entry)} -->"
            yield indent + _element(block, entry, values)


def _many(around: Block, many: Many, values: Any, indent: str, glosses: bool) -> Iterator[str]:
    items = getattr(values, many.attribute)
    if items:
        yield f"{indent}<{many.name}>"
        for item in items:
            yield from _block(many.item, item, indent + _STEP, glosses)
        yield f"{indent}</{many.name}>"
        return
    if glosses:
        yield from _example(many, indent)
    default = default_of(around.fills, many.attribute) if around.fills else ()
    yield f"{indent}<{many.name}>-</{many.name}>" if default else f"{indent}<{many.name}/>"


def _example(many: Many, indent: str) -> Iterator[str]:
    """What an item of an empty list could say, as one comment."""
    rows = [entry for entry in many.item.entries if isinstance(entry, Row)]
    yield f"{indent}<!-- any number of <{many.item.name} {' '.join(f'{row.name[1:]}=""' for row in rows)}/>:"
    yield from (f"{indent}{_STEP}{row.name[1:]}: {_gloss(many.item, row)}" for row in rows)
    yield f"{indent}-->"


def _element(block: Block, row: Row, values: Any) -> str:
    if row.xml_attribute:
        return f"<{row.element} {_attribute(block, row, values)}/>"
    text = html.escape(_text(block, row, values), quote=False)
    return f"<{row.element}>{text}</{row.element}>"


def _attribute(block: Block, row: Row, values: Any) -> str:
    return f'{row.xml_attribute}="{html.escape(_text(block, row, values))}"'


def _text(block: Block, row: Row, values: Any) -> str:
    """The text of a value; nothing where the default is empty and so is the value."""
    value = getattr(values, row.attribute)
    if value in ("", None, ()) and value == _place(block, row).default:
        return ""
    return row.kind.show(value)


def _gloss(block: Block, row: Row) -> str:
    return _place(block, row).gloss


def _place(block: Block, row: Row) -> Place:
    if block.fills is None:
        raise TypeError(f"{block.name} only groups: it has no row {row.name}")
    return Place(path=row.name, fills=block.fills, row=row)
