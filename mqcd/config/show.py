"""Settings -> the XML that loads to the same settings: for `mqcd check`, and for the file that is shipped.

Written from the schema, every setting in its place, so nothing can be left out but secrets: a password that
stands in the file is not shown, one in a file of its own is named by that.
"""

import html
from collections.abc import Iterator, Sequence
from typing import Any

from mqcd.config.blocks import Block, Many, Row, join
from mqcd.config.schema import ROOT
from mqcd.config.settings import Settings
from mqcd.core.value import value

_STEP = "  "

_HEADER = """\
<!--
  Every setting of mqcd with its default. One that is left out, or left empty, has its default.
  docs/configuration.md says more.

  Sizes: octets, or K, M, G (256K = 262144). Yes or no: Y, N. Lists: | between the items. None: -
  Times: w, d, h, m, s, ms from large to small (1h30m); a bare number is milliseconds.
  Tokens: %DIRCONF% the directory of this file, %SYSNAME% the host name, %DIRVAR% the directory
  var beside that of this file (or what MQCD_VAR names), %DIRLOG% and %DIRTMP% logs and tmp in it.
-->
"""


def as_xml(settings: Settings, *, glosses: bool = False) -> str:
    """The settings as a file; with `glosses`, what each one means stands above it as a comment."""
    return "\n".join(_block(ROOT, settings, "", glosses)) + "\n"


def shipped() -> str:
    """The file that is shipped: every setting with its default and its gloss."""
    return _HEADER + as_xml(Settings(), glosses=True)


@value
class Shown:
    """One value in effect."""

    path: str
    """As errors in the file name it."""
    value: str
    default: str
    """"" where it must be given."""
    gloss: str


def rows(settings: Settings) -> Iterator[Shown]:
    """Every value in effect, in the order of the file; no secrets."""
    yield from _rows(ROOT, settings, "")


def _rows(block: Block, values: Any, at: str) -> Iterator[Shown]:
    for given in getattr(values, block.free) if block.free else ():
        yield Shown(path=join(at, given.name), value=given.text, default="", gloss="")
    for entry in block.entries:
        if isinstance(entry, Row):
            path, value = join(at, entry.name), _text(entry, values)
            yield Shown(path=path, value=value, default=entry.default_text, gloss=entry.gloss)
        elif isinstance(entry, Block):
            inner = values if entry.fills is None else getattr(values, entry.attribute)
            yield from _rows(entry, inner, join(at, entry.name))
        else:
            around = join(at, entry.name)
            for index, item in enumerate(getattr(values, entry.attribute), start=1):
                yield from _rows(entry.item, item, f"{join(around, entry.item.name)}[{index}]")


def _block(block: Block, values: Any, indent: str, glosses: bool) -> Iterator[str]:
    """The lines of one block. `values` are the settings that its rows are in."""
    rows = [entry for entry in block.entries if isinstance(entry, Row)]
    own = [entry for entry in rows if not entry.element]
    if glosses:
        yield from (f"{indent}<!-- {entry.name}: {entry.gloss} -->" for entry in own)
    tag = block.name + "".join(f" {_attribute(entry, values)}" for entry in own)
    inner = list(_inside(block, values, indent + _STEP, glosses))
    if inner:
        yield from (f"{indent}<{tag}>", *inner, f"{indent}</{block.name}>")
    else:
        yield f"{indent}<{tag}/>"


def _inside(block: Block, values: Any, indent: str, glosses: bool) -> Iterator[str]:
    yield from _free(block, values, indent)
    lists = {each.name: each for each in block.alternatives}
    empty = [each for each in lists.values() if not getattr(values, each.attribute)]
    for entry in block.entries:
        if isinstance(entry, Many):
            if entry not in empty:
                yield from _many(entry, values, indent, glosses)
        elif isinstance(entry, Block):
            inner = values if entry.fills is None else getattr(values, entry.attribute)
            yield from _block(entry, inner, indent, glosses)
        elif entry.element and lists.get(entry.element) in (None, *empty):
            rows = [each for each in block.entries if isinstance(each, Row) and each.element == entry.element]
            if glosses:
                yield f"{indent}<!-- {_named(entry, rows)}{entry.gloss} -->"
                if entry.element in lists:
                    yield from _example(lists[entry.element], indent, "or ")
            if entry is rows[-1]:
                yield indent + _element(rows, values)


def _free(block: Block, values: Any, indent: str) -> Iterator[str]:
    for given in getattr(values, block.free) if block.free else ():
        yield f"{indent}<{given.name}>{html.escape(given.text, quote=False)}</{given.name}>"


def _named(row: Row, rows: Sequence[Row]) -> str:
    """Which value a gloss is for, where its element holds several."""
    return f"@{row.xml_attribute}: " if row.xml_attribute and len(rows) > 1 else ""


def _many(many: Many, values: Any, indent: str, glosses: bool) -> Iterator[str]:
    items = getattr(values, many.attribute)
    if not many.name:
        for item in items:
            yield from _block(many.item, item, indent, glosses)
    elif items:
        yield f"{indent}<{many.name}>"
        for item in items:
            yield from _block(many.item, item, indent + _STEP, glosses)
        yield f"{indent}</{many.name}>"
    else:
        if glosses:
            yield from _example(many, indent)
        yield f"{indent}<{many.name}>-</{many.name}>" if many.default else f"{indent}<{many.name}/>"


def _example(many: Many, indent: str, instead: str = "") -> Iterator[str]:
    """What an item of an empty list could say, as one comment."""
    inner = [entry for entry in many.item.entries if not isinstance(entry, Row)]
    closed = "" if inner else "/"
    yield f"{indent}<!-- {instead}any number of <{many.item.name}{_blank_attributes(many.item)}{closed}>"
    yield from _explained(many.item, indent + _STEP)
    for entry in inner:
        several = isinstance(entry, Many)
        item = entry.item if isinstance(entry, Many) else entry
        with_what = "with any number of" if several else "with"
        yield f"{indent}{_STEP}{with_what} <{item.name}{_blank_attributes(item)}/> inside"
        yield from _explained(item, indent + 2 * _STEP)
    yield f"{indent}-->"


def _blank_attributes(block: Block) -> str:
    own = [entry for entry in block.entries if isinstance(entry, Row) and not entry.element]
    return "".join(f' {entry.xml_attribute}=""' for entry in own)


def _explained(block: Block, indent: str) -> Iterator[str]:
    for entry in block.entries:
        if isinstance(entry, Row):
            attribute = f' {entry.xml_attribute}=""' if entry.xml_attribute else ""
            name = f"<{entry.element}{attribute}>" if entry.element else entry.name
            yield f"{indent}{name}: {entry.gloss}"


def _element(rows: Sequence[Row], values: Any) -> str:
    """An element that holds the values of these rows: one in its text, others in its attributes."""
    name = rows[0].element
    tag = name + "".join(f" {_attribute(row, values)}" for row in rows if row.xml_attribute)
    texts = [html.escape(_text(row, values), quote=False) for row in rows if not row.xml_attribute]
    return f"<{tag}>{texts[0]}</{name}>" if texts else f"<{tag}/>"


def _attribute(row: Row, values: Any) -> str:
    return f'{row.xml_attribute}="{html.escape(_text(row, values))}"'


def _text(row: Row, values: Any) -> str:
    """The text of a value; nothing where the default is empty and so is the value."""
    value = getattr(values, row.attribute)
    if value in ("", None, ()) and value == row.default:
        return ""
    return row.kind.show(value)
