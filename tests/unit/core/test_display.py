"""Times and sizes in a few letters, and addresses that cannot drive a terminal."""

import pytest

from mqcd.core.display import ago, ahead, printable, size, span

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "<1s"),
        (999, "<1s"),
        (SECOND, "1s"),
        (90 * SECOND, "1m"),
        (3 * HOUR + 5 * MINUTE, "3h 05m"),
        (30 * HOUR, "1d"),
        (11 * HOUR + MINUTE, "11h"),
        (400 * DAY, "400d"),
    ],
)
def test_a_span_has_its_largest_unit(ms: int, words: str) -> None:
    assert span(ms) == words


def test_times_are_reported_from_now() -> None:
    assert ago(0, 3 * HOUR) == "3h 00m ago"
    assert ago(5, 0) == "<1s ago"
    assert ahead(14 * MINUTE, 0) == "in 14m"
    assert ahead(0, 5) == "now"


def test_sizes_are_short() -> None:
    assert [size(n) for n in (0, 1023, 1024, 4200, 31 << 20, 5 << 30, 3 << 39)] == [
        "0", "1023", "1.0K", "4.1K", "31M", "5.0G", "1.5T",
    ]  # fmt: skip


def test_what_drives_a_terminal_does_not_get_there() -> None:
    assert printable("\x1b[2Jann\r\n@\u202eexample") == "?[2Jann??@?example"
    assert printable("éric@例.example") == "éric@例.example"
