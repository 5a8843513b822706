"""Maintenance by root of a queue that another user owns, with real user ids."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]

OWNER = 4_000_123

_MAINTAIN = """
import json, os, sys
from pathlib import Path
from mqcd.daemon.host.privileges import become_owner
from mqcd.disk.durable import Disk
from mqcd.core.errors import ConfigError

queue = Path(sys.argv[1])
try:
    user = become_owner(queue, None, [queue])
except ConfigError:
    pass  # Python itself may lie where that user cannot run it
Disk().replace_file(queue / "made", [b"x"])
print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), os.stat(queue / "made").st_uid]))
"""


def test_nothing_of_root_is_left() -> None:
    # Not tmp_path: only root may enter the directories above it.
    with TemporaryDirectory() as made:
        queue = Path(made)
        os.chown(queue, OWNER, OWNER)
        said = subprocess.run(
            [sys.executable, "-c", _MAINTAIN, str(queue)], capture_output=True, text=True, check=True
        )
    assert json.loads(said.stdout) == [[OWNER] * 3, [OWNER] * 3, [OWNER], OWNER]


@pytest.mark.parametrize("name", ["lock", "uuid", "pin", "MANIFEST"])
def test_no_link_in_the_queue_is_followed(tmp_path: Path, name: str) -> None:
    conf, secret = tmp_path / "mqcd.xml", tmp_path / "secret"
    conf.write_text("<mailserver/>")
    secret.write_text("what only root may read or write\n")
    queue = tmp_path / "var" / "queue"
    queue.mkdir(parents=True)
    (queue / name).symlink_to(secret)
    mail = tmp_path / "mail"
    mail.mkdir()
    (mail / "a.eml").write_bytes(b"From: a@a.example\r\nTo: b@b.example\r\n\r\nx\r\n")
    words = ["-c", str(conf), "--var", str(tmp_path / "var"), "import", "eml", str(mail)]
    done = subprocess.run([sys.executable, "-m", "mqcd", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert str(queue / name) in done.stderr
    assert "only root" not in done.stderr
    assert secret.read_text() == "what only root may read or write\n"
    assert secret.stat().st_nlink == 1


@pytest.mark.parametrize(
    "words",
    [
        ["fsck"],
        ["fsck", "--repair"],
        ["queue", "ls"],
        ["queue", "stat"],
        ["queue", "export", "--to", "{}/out"],
        ["import", "eml", "{}/mail"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_queue_that_is_a_users_link_is_not_worked_in_by_root(words: list[str]) -> None:
    # Not tmp_path: only root may enter the directories above it.
    with TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o755)
        (place / "mqcd.xml").write_text("<mailserver/>")
        var, secret = place / "var", place / "secret"
        for directory in (var, secret, place / "mail"):
            directory.mkdir(mode=0o755)
        secret.chmod(0o700)
        (place / "mail" / "a.eml").write_bytes(b"From: a@a.example\r\nTo: b@b.example\r\n\r\nx\r\n")
        (var / "queue").symlink_to(secret)
        for path in (var, var / "queue"):
            os.chown(path, OWNER, OWNER, follow_symlinks=False)
        command = [sys.executable, "-m", "mqcd", "-c", str(place / "mqcd.xml"), "--var", str(var)]
        done = subprocess.run(
            [*command, *(word.format(place) for word in words)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert list(secret.iterdir()) == []
        assert not (place / "out").exists()


def test_a_source_readable_by_root_alone_is_an_error() -> None:
    with TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o755)
        (place / "mqcd.xml").write_text("<mailserver/>")
        queue, mail = place / "var" / "queue", place / "mail"
        queue.mkdir(parents=True)
        mail.mkdir(mode=0o700)
        for path in (queue.parent, queue):
            os.chown(path, OWNER, OWNER)
        words = ["-c", str(place / "mqcd.xml"), "--var", str(queue.parent), "import", "eml", str(mail)]
        done = subprocess.run(
            [sys.executable, "-m", "mqcd", *words], capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert f"{mail}: {OWNER}" in done.stderr or sys.executable in done.stderr
    assert "as root" in done.stderr or sys.executable in done.stderr
