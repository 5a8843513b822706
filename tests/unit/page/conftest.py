"""A site for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.config.settings import PageSettings
from tests.unit.page.support import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """It wants tokens."""
    return Site(tmp_path)


@pytest.fixture
def open_site(tmp_path: Path) -> Site:
    """It is open to all."""
    return Site(tmp_path, PageSettings(enabled=True, open=True))
