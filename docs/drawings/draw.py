"""Draws the pictures of the docs: `python docs/drawings/draw.py`; with `--check` it only compares.

`write-path.svg` and `performance.svg` are made of the texts beside them, `rooms.svg` of the import contracts
in pyproject.toml and the first sentences of the packages.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import tomllib
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WIDTH, HEIGHT, GAP_X, GAP_Y = 146, 60, 58, 44
LEFT, TOP = 112, 44

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2933; }
.note, .label, .band { font-size: 11px; fill: #52606d; }
.note { font-size: 10px; }
.module { font-size: 9px; fill: #1d6fb8; }
.box { fill: #ffffff; stroke: #52606d; stroke-width: 1.2; }
.stripe { fill: #eef2f6; }
.line { fill: none; stroke: #1d6fb8; stroke-width: 1.5; marker-end: url(#head); }
.halo { stroke: #eef2f6; stroke-width: 4; paint-order: stroke; }
#head path { fill: #1d6fb8; }
.paper { fill: #f8fafc; }
.bar { fill: #1d6fb8; }
.more { fill: #9cc3e6; }
.grid { stroke: #d5dce3; }
.one { stroke: #c2410c; stroke-width: 1.5; }
"""


def svg(width: int, height: int, parts: list[str]) -> str:
    """A whole picture."""
    marker = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker>'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    paper = f'<rect class="paper" width="{width}" height="{height}"/>'
    return "\n".join([head, f"<style>{STYLE}</style><defs>{marker}</defs>", paper, *parts, "</svg>\n"])


def text(x: float, y: float, said: str, kind: str = "", anchor: str = "middle") -> str:
    """One line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(said)}</text>'


def rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A rectangle."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'


# ---------------------------------------------------------------- the write path

Place = tuple[float, float]


def corner(column: int, row: int) -> Place:
    """Upper left corner of a box."""
    return LEFT + column * (WIDTH + GAP_X), TOP + row * (HEIGHT + GAP_Y)


def path(way: str, a: Place, b: Place) -> tuple[str, Place]:
    """The line from box `a` to box `b`, and where its label stands."""
    (ax, ay), (bx, by) = a, b
    right = bx > ax
    middle = HEIGHT / 2
    if way in ("h", "back"):
        y = ay + middle + (10 if way == "back" else -8 if way == "h" and right else 0)
        start, end = (ax + WIDTH, bx) if right else (ax, bx + WIDTH)
        return f"M{start:g} {y:g}H{end:g}", ((start + end) / 2, y + (14 if way == "back" else -5))
    if way == "v":
        x = ax + WIDTH / 2
        return f"M{x:g} {ay + HEIGHT:g}V{by:g}", (x + 6, (ay + HEIGHT + by) / 2 + 4)
    if way == "over":
        y = ay - 18
        start, end = ax + WIDTH / 2, bx + WIDTH / 2
        return f"M{start:g} {ay:g}V{y:g}H{end:g}V{by:g}", ((start + end) / 2, y - 5)
    y, x = ay + middle, bx + WIDTH / 2
    start = ax + WIDTH if right else ax
    end = by if by > ay else by + HEIGHT
    return f"M{start:g} {y:g}H{x:g}V{end:g}", (x + 6, (y + end) / 2 + 4)


def write_path(source: str) -> str:
    """The picture of a text as write-path.txt explains it."""
    stripes: list[str] = []
    boxes: dict[str, tuple[Place, str, str, str]] = {}
    lines: list[str] = []
    labels: list[str] = []
    columns = rows = 0
    for line in source.splitlines():
        word, _, rest = line.partition(" ")
        if word == "band":
            row, _, said = rest.partition(" ")
            y = TOP + int(row) * (HEIGHT + GAP_Y)
            stripes.append(f"{y}|{said}")
        elif word == "box":
            name, column, row, said = rest.split(" ", 3)
            columns, rows = max(columns, int(column)), max(rows, int(row))
            title, note, module = (*said.split(" | "), "", "")[:3]
            if not (ROOT / "mqcd" / module).exists():
                raise SystemExit(f"write-path.txt: there is no module {module}")
            boxes[name] = corner(int(column), int(row)), title, note, module
        elif word == "arrow":
            ends, _, label = rest.partition(":")
            a, _, b, way = ends.split()
            drawn, (x, y_at) = path(way, boxes[a][0], boxes[b][0])
            lines.append(f'<path class="line" d="{drawn}"/>')
            anchor = "middle" if way in ("h", "back", "over") else "start"
            if label.strip():
                labels.append(text(x, y_at, label.strip(), "label halo", anchor))
    width = int(corner(columns, 0)[0] + WIDTH + 20)
    parts = []
    for stripe in stripes:
        y_text, _, said = stripe.partition("|")
        y = float(y_text)
        parts += [
            rect(8, y - 8, width - 16, HEIGHT + 16, "stripe"),
            text(18, y + HEIGHT / 2 + 4, said, "band", "start"),
        ]
    parts += lines
    for (x, y), title, note, module in boxes.values():
        parts += [
            rect(x, y, WIDTH, HEIGHT, "box"),
            text(x + WIDTH / 2, y + 20, title),
            text(x + WIDTH / 2, y + 36, note, "note"),
            text(x + WIDTH / 2, y + 51, module, "module"),
        ]
    return svg(width, int(corner(0, rows)[1] + HEIGHT + 20), parts + labels)


# ---------------------------------------------------------------- the rooms

ROOMS_WIDTH, ROOM_HEIGHT, HEADING = 1120, 54, 30
LETTER = 5.3
"""About how wide a letter of a note is."""


def purpose(package: str, width: float) -> list[str]:
    """The first sentence of a package's or module's docstring: as many clauses as two lines hold."""
    base = ROOT / package.replace(".", "/")
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    said = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
    sentence = " ".join(said.replace("`", "").split()).split(". ")[0].rstrip(".")
    clauses = re.split(r"(?=[:;,] )", sentence)
    while len(lines := textwrap.wrap("".join(clauses), int(width / LETTER))) > 2 and len(clauses) > 1:
        clauses.pop()
    return lines[:2]


def layers(container: str) -> list[list[str]]:
    """The layers of a container from top to bottom, as its import contract has them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (found,) = (each for each in contracts if each.get("containers") == [container])
    rows = ([name.strip(" ()") for name in each.replace(":", "|").split("|")] for each in found["layers"])
    return [[name for name in row if name != "__main__"] for row in rows]


def stack(container: str, left: float, top: float, width: float) -> tuple[list[str], float]:
    """The layers of a container, drawn, and where they end."""
    parts = [text(left + 4, top + 19, container, "", "start")]
    y = top + HEADING
    for row in layers(container):
        cell = width / len(row)
        for index, name in enumerate(row):
            x = left + index * cell
            parts += [
                rect(x + 3, y, cell - 6, ROOM_HEIGHT - 6, "box"),
                text(x + 12, y + 17, name, "", "start"),
            ]
            for number, line in enumerate(purpose(f"{container}.{name}", cell - 20)):
                parts.append(text(x + 12, y + 30 + number * 11, line, "note", "start"))
        y += ROOM_HEIGHT
    return parts, y


def rooms() -> str:
    """Packages of mqcd, and the rooms of queue and delivery: a box may import the rows below it."""
    whole, end = stack("mqcd", 8, 4, ROOMS_WIDTH - 16)
    half = (ROOMS_WIDTH - 40) / 2
    queue, queue_end = stack("mqcd.queue", 8, end + 12, half)
    deliver, deliver_end = stack("mqcd.deliver", 32 + half, end + 12, half)
    return svg(ROOMS_WIDTH, int(max(queue_end, deliver_end)) + 10, whole + queue + deliver)


# ---------------------------------------------------------------- bars

BARS_WIDTH, BAR_LEFT, BAR_HEIGHT, UNIT = 820, 270, 26, 120


def bars(source: str) -> str:
    """The picture of a text as performance.txt explains it."""
    parts: list[str] = []
    rows = [line.split(" | ") for line in source.splitlines() if not line.startswith("#")]
    height = len(rows) * (BAR_HEIGHT + 8) + 44
    ticks = max(5, *(int(float(high)) + 1 for _, _, high in rows))
    unit = UNIT * 4 / (ticks - 1)
    for tick in range(ticks):
        x = BAR_LEFT + tick * unit
        parts += [
            f'<path class="grid" d="M{x:g} 12V{height - 28}"/>',
            text(x, height - 12, f"{tick} times" if tick > 1 else str(tick), "note"),
        ]
    for index, (label, low, high) in enumerate(rows):
        y = 16 + index * (BAR_HEIGHT + 8)
        width = float(low) * unit
        parts += [
            text(BAR_LEFT - 10, y + 17, label, "", "end"),
            rect(BAR_LEFT, y, width, BAR_HEIGHT, "bar"),
            rect(BAR_LEFT + width, y, (float(high) - float(low)) * unit, BAR_HEIGHT, "more"),
            text(
                BAR_LEFT + float(high) * unit + 8,
                y + 17,
                low if low == high else f"{low} to {high}",
                "note",
                "start",
            ),
        ]
    parts.append(f'<path class="one" d="M{BAR_LEFT + unit:g} 8V{height - 26}"/>')
    return svg(BARS_WIDTH, height, parts)


PICTURES = {
    "write-path.svg": lambda: write_path((HERE / "write-path.txt").read_text(encoding="utf-8")),
    "rooms.svg": rooms,
    "performance.svg": lambda: bars((HERE / "performance.txt").read_text(encoding="utf-8")),
}


def main() -> int:
    """Draw all, or say which are not what their text makes."""
    old = [name for name, draw in PICTURES.items() if _read(HERE / name) != draw()]
    if "--check" in sys.argv:
        print(*old, sep="\n", end="")
        return 1 if old else 0
    for name in old:
        (HERE / name).write_text(PICTURES[name](), encoding="utf-8")
    return 0


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
