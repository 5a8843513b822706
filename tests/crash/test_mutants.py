"""Each sync of the queue is there for a reason: without it, some crash breaks a promise."""

from __future__ import annotations

import pytest

from tests.crash.conftest import Library
from tests.crash.mutants import ARGUED, OUTSIDE_STORIES, find, occurrences
from tests.crash.sites import bare_references, sites

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("quiet")]

_REPEATED = ("mail", "import", "failing syncs")
"""Stories whose lives after a SIGKILL show what the others do not."""


@pytest.mark.parametrize("site", [site for site in sites() if site not in ARGUED])
async def test_without_this_sync_a_crash_breaks_a_promise(library: Library, site: str) -> None:
    stories = await library.all_stories()
    caught = await find(site, stories, library.of)
    if caught is None:
        lives = [told for name in _REPEATED for told in await library.lives(name)]
        caught = await find(site, lives, library.of)
    assert caught is not None, f"no crash shows what this is for: {site}"


async def test_every_sync_that_happens_is_found_in_the_source(library: Library) -> None:
    """So that none is left out above: neither one that was handed on, nor one outside of the queue."""
    assert not bare_references()
    happened = {op.site for told in await library.all_stories() for op in told.trace.ops if op.syncs}
    # A story's reader syncs the copies that it keeps of event files.
    assert happened - {"outside: lab.py"} <= set(sites())


async def test_what_is_argued_happens(library: Library) -> None:
    stories = await library.all_stories()
    for site in ARGUED:
        happens = any(occurrences(told.trace, site) for told in stories)
        assert happens == (site not in OUTSIDE_STORIES)
