"""The fixtures of the contract: each test runs once per store, restart tests once per way to restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.ports import QueueStore
from tests.contract.harness import HARNESSES, ONLY_IN, WITH_SERVERS, Harness, Restart
from tests.contract.mail import Post


def marked(store: str, *others: object) -> Any:
    """A parameter; what needs a server is no quick test."""
    marks = [pytest.mark.slow] if store in WITH_SERVERS else []
    return pytest.param(store, marks=marks) if not others else pytest.param(*others, marks=marks)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "harness" in metafunc.fixturenames:
        module = metafunc.module.__name__.rpartition(".")[2]
        stores = [name for name in HARNESSES if module in ONLY_IN.get(name, (module,))]
        metafunc.parametrize("harness", list(map(marked, stores)), indirect=True)


@pytest.fixture
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    make, _ = HARNESSES[request.param]
    return make(tmp_path)


@pytest.fixture
async def store(harness: Harness) -> AsyncIterator[QueueStore]:
    yield await harness.start()
    await harness.stop()


@pytest.fixture
def post(store: QueueStore, harness: Harness) -> Post:
    return Post(store, harness.clock)


_RESTARTS = {f"{name}-{how.value}": (name, how) for name, (_, ways) in HARNESSES.items() for how in ways}


@pytest.fixture(params=[marked(name, each) for each, (name, _) in _RESTARTS.items()])
async def restarting(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Harness, Restart]]:
    name, how = _RESTARTS[request.param]
    harness = HARNESSES[name][0](tmp_path)
    yield harness, how
    await harness.stop()
