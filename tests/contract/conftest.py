"""The fixtures of the contract: each test runs once per store, restart tests also per way to restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.ports import QueueStore
from tests.contract.harness import BOTH_WAYS, HARNESSES, ONLY_IN, WITH_SERVERS, Harness, Restart
from tests.contract.mail import Post


def marks(store: str) -> list[pytest.MarkDecorator]:
    """What needs a server is no quick test."""
    return [pytest.mark.slow] if store in WITH_SERVERS else []


def marked(store: str) -> Any:
    """A parameter with its marks."""
    return pytest.param(store, marks=marks(store))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    stores = [name for name in HARNESSES if module in ONLY_IN.get(name, (module,))]
    if "harness" in metafunc.fixturenames:
        metafunc.parametrize("harness", list(map(marked, stores)), indirect=True)
    if "restarting" in metafunc.fixturenames:
        ways = [(name, how) for name in stores for how in _restarts(name, module)]
        params = [pytest.param(each, marks=marks(each[0]), id=f"{each[0]}-{each[1].value}") for each in ways]
        metafunc.parametrize("restarting", params, indirect=True)


def _restarts(store: str, module: str) -> tuple[Restart, ...]:
    """The ways in which a module's tests restart a store: a kill, and where it tells them apart each way."""
    ways = HARNESSES[store][1]
    return ways if module == "test_restart" or store in BOTH_WAYS else ways[-1:]


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


@pytest.fixture
async def restarting(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Harness, Restart]]:
    name, how = request.param
    harness = HARNESSES[name][0](tmp_path)
    yield harness, how
    await harness.stop()
