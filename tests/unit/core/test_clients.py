"""Which addresses count as one client."""

from __future__ import annotations

import pytest

from mqcd.core.clients import client_network


@pytest.mark.parametrize(
    ("client", "counts_as"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::/64"),
        ("", ""),
        ("root", "root"),
        ("token:crm", "token:crm"),
    ],
)
def test_what_counts_as_one_client(client: str, counts_as: str) -> None:
    assert client_network(client) == counts_as
