"""What docstrings and comments name is there."""

from __future__ import annotations

import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "mqcd"
_DOTTED = re.compile(r"`(\w+(?:\.\w+)+)`")
_FILES = ("json", "py", "toml")
_DEFINED = re.compile(
    r"^\s*(?:async def|def|class) (\w+)|^\s*(\w+)(?:: [^=\n]+)? = |^ +(\w+): |self\.(\w+)", re.M
)


def _modules() -> dict[str, set[Path]]:
    """Modules and packages by the ends of their names: `smtp.reply` and `reply` are one."""
    found = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        names = path.relative_to(PACKAGE.parent).with_suffix("").parts
        names = names[:-1] if names[-1] == "__init__" else names
        for first in range(len(names)):
            found[".".join(names[first:])].add(path)
    return found


def _prose(path: Path) -> str:
    """Comments and texts of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return "\n".join(each.string for each in tokens if each.type in (tokenize.COMMENT, tokenize.STRING))


def test_modules_that_texts_name_exist() -> None:
    modules = _modules()
    packages = {name for name, paths in modules.items() if any(each.stem == "__init__" for each in paths)}
    definitions: dict[str, set[str]] = defaultdict(set)

    def defined(name: str) -> set[str]:
        """What the modules of this name, or of this package, define."""
        if name not in definitions:
            for path in modules[name]:
                for each in path.parent.rglob("*.py") if path.stem == "__init__" else [path]:
                    definitions[name].update(*_DEFINED.findall(each.read_text()))
        return definitions[name]

    def exists(name: str) -> bool:
        if name in modules:
            return True
        module, _, last = name.rpartition(".")
        if module in modules:
            # A package is no place of functions and fields: they are found by their module.
            return last in defined(module) and (module not in packages or last[0].isupper())
        module, _, first = module.rpartition(".")
        return module in modules and module not in packages and {first, last} <= defined(module)

    missing = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in _DOTTED.findall(_prose(path))
        if name.split(".")[0] in packages and name.split(".")[-1] not in _FILES and not exists(name)
    ]
    assert missing == []
