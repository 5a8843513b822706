"""What a listener for ODMR needs."""

from __future__ import annotations

import pytest

from tests.unit.config.samples import errors

PATH = "mta/submit/listeners/listener[1]/server/users@file"


@pytest.mark.parametrize(("users", "paths"), [('<users file="users"/>', []), ("", [PATH])])
def test_odmr_needs_users(users: str, paths: list[str]) -> None:
    found = errors(
        '<mailserver><mta><submit><listeners><listener protocol="odmr" port="366">'
        f"<server>{users}</server></listener></listeners></submit></mta></mailserver>"
    )
    assert [remark.path for remark in found] == paths
