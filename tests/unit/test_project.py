"""The tree as a whole: it speaks of itself alone, keeps its shape, and reads no clock in passing."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import mqcd

ROOT = Path(__file__).parents[2]

TOP_LEVEL = {
    "mqcd", "conf", "var", "tests", "docs",
    "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE",
}  # fmt: skip

MAX_MODULE_LINES = 450
MAX_FUNCTION_LINES = 60

# The only package that may ask what time it is: everyone else holds a Clock.
CLOCK_ADAPTER = "mqcd/net/"

CLOCK_READS = {
    "time": {
        "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
        "clock_gettime", "clock_gettime_ns", "process_time",
    },
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}  # fmt: skip

# Things that only one machine or one network has. A path counts where it begins, not inside another.
ELSEWHERE = re.compile(
    r"(?<![\w.%)}\]/-])/(?:root|work|workspace|home/[a-z]\w*|Users|mnt|opt)/"
    r"|\bpypi\.(?:org|python)|\bpythonhosted\.|\bdeb\.debian\.|\barchive\.ubuntu\."
    r"|\brepo\d?\.maven\.|\bregistry\.npmjs\.|\b(?:docker|ghcr|quay)\.io\b|\bproxy\.golang\."
)
# Spelled so that this line is not found by itself.
UNFINISHED = re.compile(r"\b(?:TO(?:DO)|FIX(?:ME)|NotImplemented(?:Error))\b")


def tracked() -> list[Path]:
    """What git keeps; in an unpacked source archive, what lies there and does not begin with a dot."""
    asked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if asked.returncode == 0 and asked.stdout:
        names = [Path(name) for name in asked.stdout.split("\0") if name]
    else:
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]
        names = [n for n in names if not n.parts[0].startswith(".") and "__pycache__" not in n.parts]
    return [name for name in names if (ROOT / name).is_file()]


def text_of(name: Path) -> str:
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


def found(pattern: re.Pattern[str], names: list[Path]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name in names
        for number, line in enumerate(text_of(name).splitlines(), 1)
        if pattern.search(line)
    ]


def modules() -> list[Path]:
    return [path.relative_to(ROOT) for path in sorted((ROOT / "mqcd").rglob("*.py"))]


def tree_of(name: Path) -> ast.Module:
    return ast.parse(text_of(name), filename=str(name))


def clock_reads(tree: ast.AST) -> Iterator[int]:
    """Lines that read a clock of the time or datetime module, called or merely handed on."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(value=ast.Name(id=owner), attr=attr)
                | ast.Attribute(value=ast.Attribute(attr=owner), attr=attr)
            ) if attr in CLOCK_READS.get(owner, ()):
                yield node.lineno
            case ast.ImportFrom(module="time", names=names):
                if CLOCK_READS["time"].intersection(alias.name for alias in names):
                    yield node.lineno


def long_functions(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{node.name} ({lines} lines)"


def test_the_version_is_said_in_one_place() -> None:
    project = tomllib.loads(text_of(Path("pyproject.toml")))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "mqcd/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", mqcd.__version__)


def test_the_top_level_has_only_what_belongs_there() -> None:
    top = {name.parts[0] for name in tracked()}
    assert {name for name in top if not name.startswith(".")} - TOP_LEVEL == set()


def test_no_file_names_a_place_that_only_one_machine_has() -> None:
    assert found(ELSEWHERE, tracked()) == []


def test_nothing_is_left_unfinished() -> None:
    assert found(UNFINISHED, tracked()) == []


def test_each_module_says_what_it_promises() -> None:
    assert [str(name) for name in modules() if not ast.get_docstring(tree_of(name))] == []


def test_no_module_is_long() -> None:
    lines = {str(name): text_of(name).count("\n") for name in modules()}
    assert {name: count for name, count in lines.items() if count > MAX_MODULE_LINES} == {}


def test_no_function_is_long() -> None:
    assert [f"{name}: {long}" for name in modules() for long in long_functions(tree_of(name))] == []


def test_only_the_adapter_reads_the_clock() -> None:
    elsewhere = [name for name in modules() if not str(name).startswith(CLOCK_ADAPTER)]
    assert [f"{n}:{line}" for n in elsewhere for line in clock_reads(tree_of(n))] == []


def test_every_pattern_of_an_import_contract_matches() -> None:
    """Else a module that was renamed would leave its contract unnoticed."""
    contracts = tomllib.loads(text_of(Path("pyproject.toml")))["tool"]["importlinter"]["contracts"]
    patterns = [p for contract in contracts for p in contract.get("source_modules", ()) if "*" in p]
    expected = {p: re.compile(p.replace(".", r"\.").replace("*", r"[^.]+")) for p in patterns}
    names = {".".join(name.with_suffix("").parts) for name in modules()}
    assert [p for p, regex in expected.items() if not any(map(regex.fullmatch, names))] == []
