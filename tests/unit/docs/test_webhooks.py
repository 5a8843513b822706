"""The example of docs/webhooks.md takes what we sign, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mqcd.feeds.webhook import signature

PAGE = Path(__file__).parents[3] / "docs" / "webhooks.md"
OLD, NEW = b"an old secret of 30 characters", b"a new secret of 30 characters."
NOW, BODY = 1_800_000_000, b'{"webhook":"crm","events":[]}'


@pytest.fixture(scope="module")
def is_genuine() -> Any:
    [program] = re.findall(r"^```python\n(.+?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    return names["is_genuine"]


@pytest.mark.parametrize(
    ("signed", "at", "body", "secret", "genuine"),
    [
        ([NEW], NOW, BODY, NEW, True),
        ([NEW, OLD], NOW - 200, BODY, OLD, True),
        ([NEW], NOW, BODY, OLD, False),
        ([NEW], NOW, BODY + b" ", NEW, False),
        ([NEW], NOW - 301, BODY, NEW, False),
    ],
)
def test_the_documents_check(
    is_genuine: Any, signed: list[bytes], at: int, body: bytes, secret: bytes, genuine: bool
) -> None:
    assert is_genuine(signature(signed, at, BODY), body, secret, NOW) is genuine
