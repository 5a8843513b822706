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
from mqcd.daemon.privileges import SystemIdentity, become_owner
from mqcd.queue.durable import Disk
from mqcd.core.errors import ConfigError

queue = Path(sys.argv[1])
try:
    user = become_owner(queue, None, [queue], SystemIdentity())
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
