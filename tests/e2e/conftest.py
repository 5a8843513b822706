"""Servers and next hops for the end-to-end tests, ended by their process ids whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.kit.plan import Plan
from tests.e2e.kit.receivers import LoopThread, Peer, Receiver, Script
from tests.e2e.kit.server import Server
from tests.e2e.kit.smallfs import SmallFilesystem

MakeServer = Callable[[Plan], Server]
MakeReceiver = Callable[..., Receiver]
MakePeer = Callable[[Script], Peer]
MakeSmall = Callable[[Path], SmallFilesystem]

MEGABYTES = 12
"""Of a small file system: a queue fits in, and little mail."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/e2e/"):
            item.add_marker(pytest.mark.e2e)


def servers(directory: Path) -> Iterator[MakeServer]:
    """Make servers below `directory`; at the end each must be able to stop, and have had no faults."""
    made: list[Server] = []

    def make(plan: Plan) -> Server:
        place = directory / f"server{len(made)}"
        place.mkdir()
        server = Server(place, plan)
        made.append(server)
        return server

    yield make
    for server in made:
        server.discard()
        print(server.history())
    for server in made:
        assert server.faults() == []


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    """`make_server(plan)` gives a server that is not started yet."""
    yield from servers(tmp_path)


@pytest.fixture(scope="module")
def make_module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeServer]:
    """The same for one server that serves a whole module."""
    yield from servers(tmp_path_factory.mktemp("e2e"))


@pytest.fixture(scope="module")
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture
def make_receiver(loop_thread: LoopThread) -> Iterator[MakeReceiver]:
    """`make_receiver(*rules, host=, port=)` gives a running sink."""
    made: list[Receiver] = []

    def make(*rules: str, host: str = "127.0.0.1", port: int = 0) -> Receiver:
        made.append(Receiver(loop_thread, rules, host, port))
        return made[-1]

    yield make
    for receiver in made:
        receiver.close()


@pytest.fixture
def receiver(make_receiver: MakeReceiver) -> Receiver:
    """A sink that takes everything."""
    return make_receiver()


@pytest.fixture(scope="module")
def module_receiver(loop_thread: LoopThread) -> Iterator[Receiver]:
    """The same for a whole module."""
    made = Receiver(loop_thread)
    yield made
    made.close()


@pytest.fixture
def make_peer(loop_thread: LoopThread) -> Iterator[MakePeer]:
    """`make_peer(script)` gives a running peer."""
    made: list[Peer] = []

    def make(script: Script) -> Peer:
        made.append(Peer(loop_thread, script))
        return made[-1]

    yield make
    for peer in made:
        peer.close()


@pytest.fixture
def make_small() -> Iterator[MakeSmall]:
    """`make_small(path)` gives a file system there."""
    made: list[SmallFilesystem] = []

    def make(place: Path) -> SmallFilesystem:
        made.append(SmallFilesystem(place, MEGABYTES))
        return made[-1]

    yield make
    for each in made:
        each.remove()
