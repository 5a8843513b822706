"""The HTTP API held against its own description, by requests that schemathesis makes up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.waiting import DEADLINE
from tests.e2e.test_page import DEAD, PAGE, started, token

UNDESCRIBED = "positive_data_acceptance,negative_data_rejection"
"""A schema has no words for conditions, and none for which fields go together."""


def test_answers_are_as_described(make_server: MakeServer, tmp_path: Path) -> None:
    server = started(make_server(Plan(relays=DEAD, ops=PAGE)))
    for number in range(3):
        mail.send(server.port, mail.message(f"waits {number}"), f"a{number}@b.test")
    shown = token(server, "operate", "inject")
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"http://127.0.0.1:{server.ports['page']}/v1/openapi.json",
            *("-H", f"Authorization: Bearer {shown}"),
            *("--phases", "coverage,fuzzing", "--max-examples", "5", "--seed", "1"),
            *("--checks", "all", "--exclude-checks", UNDESCRIBED),
            # Their answers have no end.
            *("--exclude-path", "/v1/events", "--exclude-path", "/v1/trace"),
            *("--no-color", "--warnings", "off", "--generation-database", "none"),
        ],
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    assert server.stop() == 0
