"""How much memory is left: to the machine, and to a control group with a limit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mqcd.daemon.host.memory import memory, watch
from mqcd.submit.policy.load import Load
from tests.fakes.clock import FakeClock, turns

MACHINE = "MemTotal:  1000 kB\nMemFree:   5 kB\nMemAvailable:    300 kB\nHugePages_Total: 0\n"


@pytest.fixture
def system(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "group/a.slice/b.service").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(MACHINE)
    (tmp_path / "proc/self/cgroup").write_text("1:cpu:/x\n0::/a.slice/b.service\n")
    return tmp_path


def found(system: Path) -> tuple[int, int]:
    return memory(system / "proc", system / "group")


def limit(system: Path, most: str, used: int, inactive: int) -> None:
    group = system / "group/a.slice/b.service"
    (group / "memory.max").write_text(f"{most}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")


def test_the_machine(system: Path) -> None:
    assert found(system) == (300 * 1024, 1000 * 1024)
    (system / "proc/self/cgroup").unlink()
    assert found(system) == (300 * 1024, 1000 * 1024)


def test_a_group_without_a_limit(system: Path) -> None:
    limit(system, "max", 500, 0)
    assert found(system) == (300 * 1024, 1000 * 1024)


@pytest.mark.parametrize(
    ("used", "inactive", "expected"),
    [
        (9000, 0, (1000, 10_000)),
        (9000, 500, (1500, 10_000)),
        (12_000, 0, (0, 10_000)),
        (1000, 0, (300 * 1024, 1000 * 1024)),
    ],
)
def test_what_has_less_counts(system: Path, used: int, inactive: int, expected: tuple[int, int]) -> None:
    limit(system, "10000", used, inactive)
    assert found(system) == expected


async def test_the_watch_looks_every_second() -> None:
    clock, said = FakeClock(), ["", "disk full", ""]
    load = Load(clock.monotonic)
    watching = asyncio.ensure_future(watch(load, said.pop, clock))
    seen = []
    for _ in range(3):
        await turns()
        seen.append(load.refusing)
        clock.advance(1000)
    assert seen == ["", "disk full", ""]
    watching.cancel()
