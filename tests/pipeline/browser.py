"""Chromium without a screen: what a page does there, and what it looks like."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    # Its own calls home come to nothing; those of a page are told all the same.
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
_ITS_OWN = "not an origin"
"""Who asks when the browser does."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a page did."""

    document: str
    console: list[str]
    requests: list[str]


def _run(*flags: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        return subprocess.run(
            ["chromium", *_FLAGS, f"--user-data-dir={profile}", *flags],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip


def screenshot(page: Path, target: Path, *, width: int, height: int) -> tuple[int, int]:
    """Draw the page; gives width and height of the picture, which is a PNG."""
    _run(f"--window-size={width},{height}", f"--screenshot={target}", page.as_uri())
    head = target.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def look(page: Path, directory: Path) -> Seen:
    """Load a page and see what comes of it."""
    log = directory / "net.json"
    done = _run(
        "--dump-dom", "--enable-logging=stderr", "--v=0", f"--log-net-log={log}",
        "--net-log-capture-mode=IncludeSensitive", page.as_uri(),
    )  # fmt: skip
    told = json.loads(log.read_text())
    wanted = told["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    requests = [
        event["params"]["url"]
        for event in told["events"]
        if event["type"] == wanted and event.get("params", {}).get("initiator") not in (None, _ITS_OWN)
    ]
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Seen(done.stdout, console, requests)
