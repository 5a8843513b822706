"""What a listener for ODMR needs."""

from __future__ import annotations

import pytest

from tests.unit.config.samples import errors

USERS = '<users file="users"/>'


@pytest.mark.parametrize(
    ("shards", "store", "users", "paths"),
    [
        ("1", "", USERS, []),
        ("1", "", "", ["mta/submit/listeners/listener[1]/server/users@file"]),
        ("2", "", USERS, ["mta/queue/shards"]),
        ("auto", "", USERS, ["mta/queue/shards"]),
        ("auto", '<store class="memory"/>', USERS, []),
    ],
)
def test_odmr_needs_users_and_one_shard(shards: str, store: str, users: str, paths: list[str]) -> None:
    found = errors(
        f"<mailserver><mta><queue><shards>{shards}</shards>{store}</queue><submit><listeners>"
        f'<listener protocol="odmr" port="366"><server>{users}</server></listener>'
        "</listeners></submit></mta></mailserver>"
    )
    assert [remark.path for remark in found] == paths
