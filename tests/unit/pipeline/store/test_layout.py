"""Names below the staging directory, and where staged files go."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.pipeline.store.layout import DONE, OPEN, STATES, Staging, incoming, is_state


@pytest.mark.parametrize(
    ("staged", "target"),
    [
        (incoming("events", "2026-01-02"), "events/day=2026-01-02/0000000007-00000.parquet"),
        (
            incoming("recipients", "2026-01-02", OPEN),
            "recipients/day=2026-01-02/open-0000000007-00000.parquet",
        ),
        ("sites/day=2026-01-02", "sites/day=2026-01-02/0000000007-00000.parquet"),
        ("whole-events/day=2026-01-02", "events/day=2026-01-02/0000000007-00000.parquet"),
        ("whole-recipients/day=2026-01-02", "recipients/day=2026-01-02/done-0000000007-00000.parquet"),
        (STATES, None),
    ],
)
def test_a_staged_file_goes_to_its_table_and_day(tmp_path: Path, staged: str, target: str | None) -> None:
    staging = Staging(tmp_path, tmp_path / "_staging" / "x", 7)
    (staging.path / staged).mkdir(parents=True)
    (staging.path / staged / "part.parquet").touch()
    moves = list(staging.moves())
    assert moves == ([] if target is None else [[f"_staging/x/{staged}/part.parquet", target]])


def test_a_state_is_in_the_name_or_in_the_staged_path() -> None:
    assert is_state("recipients/day=2026-01-02/done-1.parquet", DONE)
    assert is_state(f"{incoming('recipients', '2026-01-02', DONE)}/x.parquet", DONE)
    assert not is_state("recipients/day=2026-01-02/open-1.parquet", DONE)


def test_events_without_repeated_ones_replace_those_that_came(tmp_path: Path) -> None:
    staging = Staging(tmp_path, tmp_path / "x", 1)
    once = staging.once / "into=events" / "day=2026-01-02"
    once.mkdir(parents=True)
    (once / "part.parquet").touch()
    staging.replace_incoming()
    assert [Path(path).name for path in staging.came("events")] == ["once-part.parquet"]
