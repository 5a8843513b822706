"""Every place in queue, event log and disk that asks for durability, found in the source itself.

A site has a name that stays when lines move: module, function, what is called, and for calls that make
several syncs which of them. The same name is given to a sync while it happens, so a site that no trace
reaches, and a new one that nobody has thought about, both show.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

import mqcd
from mqcd.disk import durable

_ROOT = Path(mqcd.__file__).parent
_ROOMS = ("disk", "eventlog", "queue")
_OTHERS = {Path(durable.__file__), _ROOT / "disk" / "private.py"}
"""The calls themselves; and files of users and tokens, which hold no mail and have tests of their own."""
_SYNCS: dict[str, tuple[str, ...]] = {
    "datasync": ("",),
    "sync_appended": ("",),
    "zero_fill": ("",),
    "sync_dir": ("",),
    "sync_filesystem": ("",),
    "mkdir": ("",),
    "write_temp": ("",),
    "replace_file": (" file", " directory"),
}
"""What makes something durable, and its syncs."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One call in the source."""

    name: str
    """Of the site, without its part."""
    operation: str
    first: int
    last: int
    """Lines."""


def sites() -> list[str]:
    """The names of all sites, in the order of modules and lines."""
    return [
        call.name + part
        for path in _modules()
        if path not in _OTHERS
        for call in _calls(path)
        for part in _SYNCS[call.operation]
    ]


def _modules() -> list[Path]:
    return sorted(path for room in _ROOMS for path in (_ROOT / room).rglob("*.py"))


def module_of(path: Path) -> str:
    """A module's name below `mqcd`."""
    return ".".join(path.relative_to(_ROOT).with_suffix("").parts)


def site_of(frame: FrameType | None, own: str) -> str:
    """The site of a sync that is happening; `frame` belongs to the disk, whose file is `own`."""
    inner: list[str] = []
    while frame is not None and frame.f_code.co_filename in (own, durable.__file__):
        if frame.f_code.co_filename == durable.__file__ or not inner:
            inner.append(frame.f_code.co_name)
        frame = frame.f_back
    assert frame is not None
    path, line = Path(frame.f_code.co_filename), frame.f_lineno
    if not path.is_relative_to(_ROOT):
        return f"outside: {path.name}"
    for call in _calls(path):
        if call.operation == inner[-1] and call.first <= line <= call.last:
            return call.name + _part(inner)
    return f"unknown: {path.name}, line {line}"


def caller(own: str) -> str:
    """Who outside of the disk asked for a change: for people who look at a trace."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in (own, durable.__file__):
        frame = frame.f_back
    assert frame is not None
    path = Path(frame.f_code.co_filename)
    module = module_of(path) if path.is_relative_to(_ROOT) else path.stem
    return f"{module}.{frame.f_code.co_qualname.replace('.<locals>', '')}"


def _part(inner: list[str]) -> str:
    if inner[-1] != "replace_file":
        return ""
    return " file" if inner[0] == "datasync" else " directory"


@cache
def _calls(path: Path) -> tuple[_Call, ...]:
    found = _walk(ast.parse(path.read_text()), module_of(path), "")
    counts: Counter[str] = Counter()
    numbered = []
    for call in sorted(found, key=lambda each: each.first):
        counts[call.name] += 1
        suffix = f" {counts[call.name]}" if counts[call.name] > 1 else ""
        numbered.append(_Call(call.name + suffix, call.operation, call.first, call.last))
    return tuple(numbered)


def _walk(tree: ast.AST, module: str, scope: str) -> Iterator[_Call]:
    for node in ast.iter_child_nodes(tree):
        inside = scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{scope}.{node.name}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            operation = node.func.attr
            if operation in _SYNCS and not _unsynced(node):
                assert node.end_lineno is not None
                yield _Call(f"{module}{scope}: {operation}", operation, node.lineno, node.end_lineno)
        yield from _walk(node, module, inside)


def _unsynced(call: ast.Call) -> bool:
    """Whether it says `sync=False`."""
    return any(
        keyword.arg == "sync" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        for keyword in call.keywords
    )


def bare_references() -> list[str]:
    """Syncs that are handed on instead of called: `sites` would not see where they happen."""
    found = []
    for path in _modules():
        tree = ast.parse(path.read_text())
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        found += [
            f"{module_of(path)}, line {node.lineno}: {node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr in _SYNCS and id(node) not in called
        ]
    return found
