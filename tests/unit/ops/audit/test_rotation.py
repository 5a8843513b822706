"""Which file of an audit log a moment belongs to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.config.settings import Rotation
from mqcd.ops.audit.rotation import Names, last_number, numbered


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


AT = ms("2026-11-21T15:59:59")  # a Saturday


@pytest.mark.parametrize(
    ("template", "rotation", "path"),
    [
        ("/l/d.log", "never", "/l/d.log"),
        ("/l/d.log", "hourly", "/l/d-20261121-15.log"),
        ("/l/d.log", "daily", "/l/d-20261121.log"),
        ("/l/d.log", "weekly", "/l/d-20261116.log"),
        ("/l/d.log", "monthly", "/l/d-202611.log"),
        ("/l/d.log", "yearly", "/l/d-2026.log"),
        ("/l/d", "daily", "/l/d-20261121"),
        ("/l/d-%DT%.log", "never", "/l/d-20261121.log"),
        ("/l/d-%DT%.log", "monthly", "/l/d-202611.log"),
        ("/l/d-%DT%.log", "hourly", "/l/d-20261121-15.log"),
        ("/l/Y%Y%/M%M%-d-%DT%.log", "monthly", "/l/Y2026/M11-d-202611.log"),
        ("/l/Y%Y%/M%M%-d-%DT%.log", "never", "/l/Y2026/M11-d-202611.log"),
        ("/l/%Y%/%M%/%D%.log", "never", "/l/2026/11/21.log"),
        ("/l/%Y%/%M%/%D%.log", "monthly", "/l/2026/11/21.log"),
        ("/l/%Y%/%M%/%D%.log", "weekly", "/l/2026/11/21.log"),
        ("/l/%Y%/%M%/d.log", "weekly", "/l/2026/11/d-20261116.log"),
        ("/l/%Y%/%M%/d.log", "never", "/l/2026/11/d.log"),
        ("/l/M%M%.log", "never", "/l/M11-202611.log"),
        ("/l/%Y%/d.log", "hourly", "/l/2026/d-20261121-15.log"),
    ],
)
def test_the_path_of_a_moment(template: str, rotation: str, path: str) -> None:
    assert Names(Path(template), Rotation(rotation)).path(AT) == Path(path)


@pytest.mark.parametrize(
    ("rotation", "last", "first"),
    [
        ("hourly", "2026-11-21T15:59:59.999", "2026-11-21T16:00:00"),
        ("daily", "2026-11-21T23:59:59.999", "2026-11-22T00:00:00"),
        ("weekly", "2026-11-22T23:59:59.999", "2026-11-23T00:00:00"),
        ("monthly", "2026-11-30T23:59:59.999", "2026-12-01T00:00:00"),
        ("yearly", "2026-12-31T23:59:59.999", "2027-01-01T00:00:00"),
    ],
)
def test_another_file_begins_with_the_first_millisecond(rotation: str, last: str, first: str) -> None:
    names = Names(Path("/l/d.log"), Rotation(rotation))
    assert names.path(ms(last)) == names.path(ms(last) - 1)
    assert names.path(ms(last)) != names.path(ms(first))
    assert names.path(ms(first)) == names.path(ms(first) + 1)


def test_a_week_that_begins_in_another_year_has_one_file() -> None:
    names = Names(Path("/l/%Y%/d-%DT%.log"), Rotation.WEEKLY)
    assert {names.path(ms(day)) for day in ("2026-12-28", "2026-12-31", "2027-01-01", "2027-01-03")} == {
        Path("/l/2026/d-20261228.log")
    }


def test_a_moment_that_cannot_be_has_a_file_too() -> None:
    names = Names(Path("/l/d.log"), Rotation.DAILY)
    assert names.path(-1) == Path("/l/d-19700101.log")
    assert names.path(2**63 - 1) == Path("/l/d-99991231.log")


@given(
    st.sampled_from(["d.log", "%Y%/%M%-%DT%.log", "%M%/%D%", "%Y%/%D%.a.b", "%DT%"]),
    st.sampled_from(Rotation),
    st.integers(0, ms("2200-01-01")),
    st.integers(0, 400 * 86_400_000),
)
def test_files_are_distinct_and_passed_times_never_return(
    template: str, rotation: Rotation, at: int, later: int
) -> None:
    names = Names(Path("/l") / template, rotation)
    if names.path(at) == names.path(at + later):
        assert names.path(at + later // 2) == names.path(at)
    assert "%" not in str(names.path(at))


def test_the_directory_that_all_files_share() -> None:
    assert Names(Path("/l/audit/Y%Y%/M%M%/d.log"), Rotation.NEVER).directory == Path("/l/audit")
    assert Names(Path("/l/d.log"), Rotation.DAILY).directory == Path("/l")


def test_audit_files_are_numbered_before_the_suffix() -> None:
    path = Path("/l/d.x.log")
    assert [numbered(path, n) for n in (0, 1, 12)] == [path, Path("/l/d.x.1.log"), Path("/l/d.x.12.log")]
    there = [numbered(path, n) for n in (0, 2, 9, 10)]
    strangers = [Path("/l/d.x.11.log.gz"), Path("/l/e.x.99.log"), Path("/l/d.x.-3.log"), Path("/l/d.99.log")]
    assert last_number(path, [*there, *strangers]) == 10
    assert last_number(path, strangers) == 0
