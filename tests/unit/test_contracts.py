"""Each import contract, broken once on purpose in a copy of the tree, is seen to be broken."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

# contract id -> (file, import to add to it, what the answer then names)
SEEDS = {
    "floors": [
        ("config/seeded.py", "import mqcd.net", "mqcd.config.seeded -> mqcd.net"),
        ("eventlog/seeded.py", "import mqcd.queue", "mqcd.eventlog.seeded -> mqcd.queue"),
        ("submit/seeded.py", "import mqcd.deliver", "mqcd.submit.seeded -> mqcd.deliver"),
        ("core/upward.py", "import mqcd.config", "mqcd.core.upward -> mqcd.config"),
        ("daemon/__init__.py", "import mqcd.cli", "mqcd.daemon -> mqcd.cli"),
    ],
    "queue": [
        ("queue/format/seeded.py", "import mqcd.queue.wal", "mqcd.queue.format.seeded -> mqcd.queue.wal"),
        (
            "queue/memory/seeded.py",
            "import mqcd.queue.requests",
            "mqcd.queue.memory.seeded -> mqcd.queue.requests",
        ),
    ],
    "deliver": [
        (
            "deliver/smtp/seeded.py",
            "import mqcd.deliver.lanes",
            "mqcd.deliver.smtp.seeded -> mqcd.deliver.lanes",
        ),
    ],
    "pure": [
        ("core/clocked.py", "import time", "mqcd.core.clocked -> time"),
        ("queue/format/record.py", "import os", "mqcd.queue.format.record -> os"),
        ("queue/format/frame.py", "import os.path", "mqcd.queue.format.frame -> os"),
        ("submit/policy.py", "import socket", "mqcd.submit.policy -> socket"),
        ("deliver/routing/routing.py", "import ssl", "mqcd.deliver.routing.routing -> ssl"),
        ("sink/dialogue.py", "from time import monotonic", "mqcd.sink.dialogue -> time"),
        ("deliver/lanes/scheduling.py", "import asyncio", "mqcd.deliver.lanes.scheduling -> asyncio"),
        ("deliver/smtp/client.py", "import asyncio.streams", "mqcd.deliver.smtp.client -> asyncio"),
        ("report/dsn.py", "import threading", "mqcd.report.dsn -> threading"),
    ],
    "lxml": [
        ("submit/parsing.py", "import lxml.etree", "mqcd.submit.parsing -> lxml"),
        ("daemon/__init__.py", "from lxml import etree", "mqcd.daemon -> lxml"),
    ],
    "settings": [("config/settings.py", "import lxml.etree", "mqcd.config.settings -> lxml")],
    "pyspark": [("ops/spark.py", "import pyspark.sql", "mqcd.ops.spark -> pyspark")],
    "ports": [
        (f"{package}/shortcut.py", f"import mqcd.{store}", f"mqcd.{package}.shortcut -> mqcd.{store}")
        for package in ("submit", "deliver", "report", "ops", "sink", "top")
        for store in ("queue", "stores")
    ],
    "acyclic": [
        ("core/hen.py", "import mqcd.core.egg", "cycles are allowed in mqcd.core."),
        (
            "core/egg.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import mqcd.core.hen",
            ".hen",
        ),
    ],
}

# What the contracts let pass: nothing of it may be named in an answer.
ALLOWED = [
    ("config/xml.py", "import lxml.etree", "mqcd.config.xml -> lxml"),
    ("pipeline/tables.py", "import pyspark.sql", "mqcd.pipeline.tables -> pyspark"),
    ("cli/__init__.py", "import mqcd.config.xml", "mqcd.cli -> mqcd.config.xml"),
    ("net/clock.py", "import time", "mqcd.net.clock -> time"),
]


def declared() -> list[dict[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return contracts


def contracts() -> dict[str, str]:
    """Names of the contracts in pyproject.toml, by id."""
    return {contract["id"]: contract["name"] for contract in declared()}


def copy_of_the_tree(to: Path) -> Path:
    shutil.copytree(ROOT / "mqcd", to / "mqcd", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", to)
    return to


def plant(tree: Path, name: str, text: str) -> None:
    path = tree / "mqcd" / name
    if path.name == "__init__.py" and path.parent.with_suffix(".py").exists():
        path = path.parent.with_suffix(".py")  # a floor that is a module, not a package
    else:
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
    with path.open("a") as file:
        file.write(f"\n{text}\n")


def lint(tree: Path) -> str:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tree,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What lint-imports says of a tree with every seed in it."""
    tree = copy_of_the_tree(tmp_path_factory.mktemp("seeded"))
    for name, text, _ in [seed for seeds in SEEDS.values() for seed in seeds] + ALLOWED:
        plant(tree, name, text)
    return lint(tree)


def test_every_contract_has_a_seed() -> None:
    assert SEEDS.keys() == contracts().keys()


def test_every_pattern_of_modules_matches_one() -> None:
    """Else a module that was renamed would leave its contract, and nobody would hear of it."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "mqcd").rglob("*.py")
    }
    patterns = [p for contract in declared() for p in contract.get("source_modules", ()) if "*" in p]
    expected = {p: re.compile(p.replace(".", r"\.").replace("*", r"[^.]+")) for p in patterns}
    assert [p for p, regex in expected.items() if not any(map(regex.fullmatch, modules))] == []


@pytest.mark.parametrize("contract", SEEDS)
def test_a_broken_contract_names_each_import(answer: str, contract: str) -> None:
    assert f"{contracts()[contract]} BROKEN" in answer
    missed = [named for _, _, named in SEEDS[contract] if named not in answer]
    assert missed == []


def test_what_is_allowed_is_not_named(answer: str) -> None:
    assert [named for _, _, named in ALLOWED if named in answer] == []


def test_a_package_without_a_floor_breaks_the_contract(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path)
    plant(tree, "attic/__init__.py", "")
    answer = lint(tree)
    assert f"{contracts()['floors']} BROKEN" in answer
    assert "attic" in answer
