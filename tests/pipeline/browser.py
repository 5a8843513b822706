"""Chromium without a screen: what a page does there, and what it looks like."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


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


def look(page: Path, log: Path, *, width: int = 1280) -> tuple[str, str]:
    """The document as the browser has it in the end, and what its console said."""
    done = _run(
        f"--window-size={width},900", "--dump-dom", "--enable-logging=stderr", "--v=0",
        f"--log-net-log={log}", "--net-log-capture-mode=IncludeSensitive", page.as_uri(),
    )  # fmt: skip
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, "\n".join(console)
