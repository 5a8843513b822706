"""What was acknowledged outlives an ext4 that aborts its journal meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.aborts import aborting, rounds

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(300),
    pytest.mark.needs("mkfs.ext4"),
    pytest.mark.usefixtures("quiet"),
]

ROUNDS = 20
"""`python -m tests.crash.full` has 100."""


async def test_an_abort_of_ext4_loses_no_acknowledged_mail(tmp_path: Path) -> None:
    with aborting(tmp_path) as disk:
        if disk is None:
            pytest.skip("no ext4 can be mounted from a file here: that needs root and loop devices")
        assert await rounds(disk, ROUNDS, seed=1) > ROUNDS
