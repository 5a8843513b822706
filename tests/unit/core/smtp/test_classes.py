"""Replies fall into classes."""

from __future__ import annotations

import pytest

from mqcd.core.smtp.classes import class_of


@pytest.mark.parametrize(
    ("code", "status", "word"),
    [
        (250, "2.0.0", "success"),
        (250, "", "success"),
        (550, "5.1.1", "address"),
        (452, "4.2.2", "mailbox"),
        (421, "4.3.2", "system"),
        (451, "4.4.1", "network"),
        (504, "5.5.4", "protocol"),
        (552, "5.6.0", "content"),
        (554, "5.7.1", "policy"),
        # The status says nothing, or there is none: the code does.
        (450, "4.0.0", "mailbox"),
        (550, "", "mailbox"),
        (421, "", "system"),
        (556, "", "address"),
        (535, "", "policy"),
        (502, "", "protocol"),
        (554, "", "other"),
        (471, "4.9.9", "other"),
        (0, "5.1.1", "address"),
        (0, "", "other"),
    ],
)
def test_the_status_tells_else_the_code(code: int, status: str, word: str) -> None:
    assert class_of(code, status) == word
