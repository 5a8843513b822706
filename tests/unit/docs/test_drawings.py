"""The drawings of the docs show what their texts say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

DRAWINGS = Path(__file__).parents[3] / "docs" / "drawings"


def test_drawings_are_what_their_texts_make() -> None:
    done = subprocess.run(
        [sys.executable, str(DRAWINGS / "draw.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "run `python docs/drawings/draw.py`"


@pytest.mark.parametrize("name", ["write-path.svg", "rooms.svg"])
def test_a_drawing_is_well_formed(name: str) -> None:
    assert ElementTree.parse(DRAWINGS / name).getroot().get("viewBox")
