"""The queue's helper process when its server is killed: it ends, and says nothing, whatever it was at."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mqcd.queue.helper import jobs
from tests.e2e.kit.server import ROOT
from tests.e2e.kit.waiting import DEADLINE


@pytest.mark.parametrize("cut", ["before the answer", "in the task", "in its length"])
def test_a_helper_whose_server_has_died_ends_without_a_word(tmp_path: Path, cut: str) -> None:
    task = pickle.dumps(jobs.Prepare(tmp_path / "slot", 4096))
    message = len(task).to_bytes(4, "little") + task
    sent = {"before the answer": message, "in the task": message[:-5], "in its length": message[:2]}[cut]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(sent)
        # Gone before the helper has begun: what it then reads is all that the server got out.
        ours.close()
        done = subprocess.run(
            [sys.executable, "-m", "mqcd.queue.helper.helper", str(theirs.fileno()), str(os.getpid())],
            pass_fds=(theirs.fileno(),),
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=DEADLINE,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
