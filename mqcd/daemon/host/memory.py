"""How much memory is left: to the machine, or to the server's control group where that has less (Linux).

`watch` passes it on to the doors, and whether the queue takes mail.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mqcd.core.ports import Clock
from mqcd.submit.policy.load import Load

_KIB = 1024
_INTERVAL_MS = 1000


async def watch(load: Load, refusing: Callable[[], str], clock: Clock) -> None:
    """Keep `load` up to date; `refusing`: why the queue takes no mail, "" = it does."""
    while True:
        # Other systems do not say it this way: there the doors go by the rest.
        with suppress(OSError):
            load.memory_is(*memory())
        load.refusing = refusing()
        await clock.sleep(_INTERVAL_MS)


def memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> tuple[int, int]:
    """Octets available and in all. Raises OSError where the system does not say."""
    known = _numbers((proc / "meminfo").read_text(), _KIB)
    machine = known.get("MemAvailable:", 1), known.get("MemTotal:", 1)
    try:
        group = _of_group(cgroups / _group((proc / "self/cgroup").read_text()))
    except (OSError, ValueError):
        # No control group of version 2, or one without a limit.
        return machine
    return min(machine, group, key=lambda pair: pair[0] * max(machine[1], group[1]) // max(pair[1], 1))


def _group(text: str) -> str:
    """The path of version 2's group in /proc/self/cgroup. Raises ValueError without one."""
    [path] = [line[3:].lstrip("/") for line in text.splitlines() if line.startswith("0::")]
    return path


def _of_group(directory: Path) -> tuple[int, int]:
    """Raises OSError, ValueError: "max" is no number."""
    most = int((directory / "memory.max").read_text())
    used = int((directory / "memory.current").read_text())
    # Pages of files that nobody reads are given up first.
    spare = _numbers((directory / "memory.stat").read_text(), 1).get("inactive_file", 0)
    return max(most - used + spare, 0), most


def _numbers(text: str, unit: int) -> dict[str, int]:
    words = (line.split() for line in text.splitlines())
    return {line[0]: int(line[1]) * unit for line in words if len(line) >= 2 and line[1].isdigit()}
