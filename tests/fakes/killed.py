"""A copy of a tree as kill -9 leaves it: what a test opens to see what a dead process left behind.

The owner still runs while the copy is made, and may remove a file that it needs no more between listing
and copying: a crash a moment later would have found it gone too.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path


def _copy(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


def copy_as_killed(source: Path, target: Path) -> None:
    """Copy a tree; files that go meanwhile are left out."""
    try:
        shutil.copytree(source, target, symlinks=True, copy_function=_copy)
    except shutil.Error as error:
        # A directory that goes meanwhile is told only at the end, when all else has been copied.
        if not all("No such file" in str(why) for _, _, why in error.args[0]):
            raise
