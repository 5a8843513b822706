"""Commands that are run in a directory that belongs to somebody else import nothing from it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqcd.core.selecting.selection import Selection
from mqcd.queue.helper import jobs
from mqcd.queue.helper.helper import Helper
from mqcd.queue.helper.scans import Scans
from tests.e2e.kit.hostile import hostile_directory, imported_from, script
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.waiting import DEADLINE
from tests.unit.queue.support import Rig

pytestmark = pytest.mark.e2e


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = await Rig(tmp_path / "queue").open()
    yield made
    await made.close()


def run(hostile: Path, conf: Path, *words: str) -> None:
    command = [script("mqcd"), "-c", str(conf), "--var", str(conf.parent / "var"), *words]
    subprocess.run(command, cwd=hostile, timeout=DEADLINE, check=True, stdout=subprocess.DEVNULL)


def test_imports_and_repairs_take_no_module_from_the_directory(tmp_path: Path) -> None:
    conf = tmp_path / "mqcd.xml"
    conf.write_text(Plan().xml())
    mail = tmp_path / "mail"
    mail.mkdir()
    (mail / "a.eml").write_bytes(b"From: a@a.example\r\nTo: b@b.example\r\n\r\nx\r\n")
    hostile = hostile_directory(tmp_path)
    run(hostile, conf, "import", "eml", str(mail))
    run(hostile, conf, "fsck", "--repair")
    run(hostile, conf, "queue", "ls")
    assert imported_from(hostile) == []


async def test_children_of_the_server_take_no_module(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.post.send("a@a.example")
    hostile = hostile_directory(tmp_path)
    monkeypatch.chdir(hostile)
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    helper = Helper(lock)
    await helper.run(jobs.Prepare(tmp_path / "slot", 4096))
    await helper.stop()
    os.close(lock)
    found = [each async for each in Scans().run((rig.queue, rig.spool, Selection()))]
    assert [each.address for batch in found for each in batch] == ["a@a.example"]
    assert imported_from(hostile) == []
