"""A whole run may take several: what the next one goes on with."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.crash.full import Kept, Piece
from tests.crash.matrix import Tally
from tests.crash.scenarios import tell


async def test_a_later_run_goes_on_with_the_stories_of_the_first(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    told, done = await tell("mail"), (Piece(0, 0, 8, 0), Tally(), {b"a state"})
    with closing(Kept(file, 1)) as first:
        assert (first.stories, first.done) == ([], [])
        first.begin([told])
        first.add(done)
    with file.open("ab") as cut_off:
        cut_off.write(file.read_bytes()[:100])
    for _ in range(2):
        with closing(Kept(file, 1)) as later:
            assert [each.trace.ops for each in later.stories] == [told.trace.ops]
            assert later.done == [done]


async def test_with_another_seed_a_run_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    with closing(Kept(file, 1)) as first:
        first.begin([await tell("mail")])
    for seed in (2, 1):
        with closing(Kept(file, seed)) as later:
            assert later.stories == []
