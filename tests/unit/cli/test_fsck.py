"""`fsck` as scripts and people see it: fields, words and exit codes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mqcd.cli import main
from mqcd.cli.upkeep import interruptible
from mqcd.core.model import Envelope, Submission
from mqcd.daemon.derived import options_of, schedule_of
from mqcd.net.clock import SystemClock
from mqcd.queue.store import ClusterStore
from tests.fakes.observer import RecordingObserver
from tests.unit.daemon.support import settings_of, write_conf

Capture = pytest.CaptureFixture[str]
FIELDS = {
    "ok", "records", "contents", "quarantined", "orphans", "missing", "running", "problems", "notes",
}  # fmt: skip


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ClusterStore]:
    """An open store with a message to two, at the place that the configuration names."""
    settings = settings_of(write_conf(tmp_path))
    options = options_of(settings, schedule_of(settings))
    made = ClusterStore(options, SystemClock(), RecordingObserver())
    await made.open()
    await made.recovered()
    envelope = Envelope(spid=made.reserve(True), sender="me@here.example", received=SystemClock().now())
    await made.enqueue(Submission(envelope=envelope, recipients=("a@b.example", "c@d.example"), content=b"x"))
    yield made
    await made.close()


def words(tmp_path: Path, *more: str) -> list[str]:
    return ["-c", str(tmp_path / "conf" / "mqcd.xml"), "fsck", *more]


def told(capfd: Capture) -> dict[str, Any]:
    (line,) = capfd.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


async def test_json_has_every_field(store: ClusterStore, tmp_path: Path, capfd: Capture) -> None:
    assert main(words(tmp_path, "--json")) == 0
    found = told(capfd)
    assert set(found) == FIELDS
    assert (found["ok"], found["records"], found["contents"], found["running"]) == (True, 2, 1, True)


async def test_a_sound_queue_has_no_problems(store: ClusterStore, tmp_path: Path, capfd: Capture) -> None:
    await store.close()
    assert main(words(tmp_path)) == 0
    said = capfd.readouterr().out
    assert said == "2 records, 1 contents, 0 quarantined, 0 orphans, 0 without content\nno problems found\n"


async def test_damage_is_exit_code_1_with_its_place(
    store: ClusterStore, tmp_path: Path, capfd: Capture
) -> None:
    await store.close()
    (cluster,) = (tmp_path / "var" / "queue").rglob("*.mqc")
    cluster.write_bytes(cluster.read_bytes()[:-2] + b"?\n")
    assert main(words(tmp_path)) == 1
    said = capfd.readouterr().out
    assert f"{cluster}:3: " in said
    assert "1 problem\n" in said
    assert "--repair" in said
    assert main(words(tmp_path, "--json")) == 1
    (problem,) = told(capfd)["problems"]
    assert (problem["kind"], problem["path"], problem["line"]) == ("line", str(cluster), 3)


async def test_beside_a_server_nothing_is_repaired(
    store: ClusterStore, tmp_path: Path, capfd: Capture
) -> None:
    assert await asyncio.to_thread(main, words(tmp_path, "--repair")) == 1
    assert "stop that server first" in capfd.readouterr().err


def test_without_a_queue_none_is_made(tmp_path: Path, capfd: Capture) -> None:
    write_conf(tmp_path)
    assert main(words(tmp_path, "--repair")) == 1
    assert "holds no queue" in capfd.readouterr().err
    assert not (tmp_path / "var").exists()


def test_repair_mends_and_tells(tmp_path: Path, capfd: Capture) -> None:
    write_queue(tmp_path)
    (cluster,) = (tmp_path / "var" / "queue").rglob("*.mqc")
    cluster.write_bytes(cluster.read_bytes()[:-2] + b"?\n")
    assert main(words(tmp_path, "--repair", "--json")) == 0
    found = told(capfd)
    assert (found["ok"], found["records"], found["quarantined"]) == (True, 1, 1)
    assert main(words(tmp_path, "--json")) == 0


def test_repair_says_why_it_keeps_what_belongs_to_nobody(tmp_path: Path, capfd: Capture) -> None:
    write_queue(tmp_path)
    (cluster,) = (tmp_path / "var" / "queue").rglob("*.mqc")
    cluster.rename(cluster.with_name("M999-0.mqc"))
    assert main(words(tmp_path, "--repair")) == 1
    said = capfd.readouterr().out
    assert "from a copy" in said
    assert "orphans are kept" in said


def test_a_manifest_that_cannot_be_mended_says_what_to_do(tmp_path: Path, capfd: Capture) -> None:
    write_queue(tmp_path)
    manifest = tmp_path / "var" / "queue" / "MANIFEST"
    # No hexadecimal digit: a checksum may begin with any of those already.
    manifest.write_bytes(b"x" + manifest.read_bytes()[1:] + b"\n")
    assert main(words(tmp_path, "--repair")) == 1
    said = capfd.readouterr()
    assert "not repaired" in said.err
    assert "from a copy" in said.out
    assert "mqcd fsck" not in said.err + said.out


def write_queue(tmp_path: Path) -> None:
    """A stopped queue with a message to two."""

    async def write() -> None:
        settings = settings_of(write_conf(tmp_path))
        made = ClusterStore(options_of(settings, schedule_of(settings)), SystemClock(), RecordingObserver())
        await made.open()
        await made.recovered()
        envelope = Envelope(spid=made.reserve(True), sender="", received=SystemClock().now())
        recipients = ("a@b.example", "c@d.example")
        await made.enqueue(Submission(envelope=envelope, recipients=recipients, content=b"x"))
        await made.close()

    asyncio.run(write())


def test_an_interrupt_ends_work_that_waits_for_nothing(ctrl_c: Callable[[], None]) -> None:
    done: list[str] = []

    async def work() -> None:
        ctrl_c()
        done.append("all")

    with pytest.raises(KeyboardInterrupt):
        interruptible(work())
    assert done == []


def test_an_interrupt_lets_work_that_waits_put_its_things_away(ctrl_c: Callable[[], None]) -> None:
    done: list[str] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(ctrl_c)
        try:
            await loop.create_future()
        finally:
            await asyncio.sleep(0)
            done.append("closed")

    with pytest.raises(KeyboardInterrupt):
        interruptible(work())
    assert done == ["closed"]
