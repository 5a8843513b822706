"""How soon the page shows something with a million recipients in the queue.

    python tests/bench/page.py [--recipients 1000000] [--rounds 20] [--keep DIR]

The queue is made by the engine itself (see build.py), and served by a whole server with its page; its next
hop is dead. For each page: the time until the first octet of the answer, and until its last one; in Chromium,
where that is installed, from the navigation to the first contentful paint, and until all that the page loads
later is there. Medians and the longest of all rounds, ms.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import kit, servers
from tests.bench.build import fill
from tests.e2e.kit.browser import Browser, browser

PAGES = ("/", "/queue", "/queue?where=area+%3D+deferred", "/destinations", "/server")
_PAINT = """
const paint = performance.getEntriesByName("first-contentful-paint")[0];
return paint ? paint.startTime : null;
"""


async def make(root: Path, given: dict[str, Any]) -> None:
    """Make the queue."""
    made = kit.store(kit.options(root))
    await made.open()
    await made.recovered()
    built = await fill(made, given["recipients"], 512)
    await made.close()
    kit.say_and_die({"recipients": built.recipients})


@contextmanager
def served(root: Path) -> Iterator[int]:
    """The page's port, of a server over this queue."""
    ops, page, door = servers.free_port(), servers.free_port(), servers.free_port()
    conf = root / "mqcd.xml"
    conf.write_text(
        f"""<mailserver><mta>
<queue><shards>1</shards></queue>
<submit><listeners><listener interface="127.0.0.1" port="{door}"/></listeners></submit>
<deliver><relays><relay address="127.0.0.1:1"/></relays></deliver>
</mta><ops port="{ops}"><page port="{page}" open="Y"/></ops></mailserver>
""",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "mqcd", "run", "-c", str(conf), "--var", str(root)]
    with (root / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            servers.until(lambda: servers.ready(ops), "the server")
            servers.until(lambda: _answers(page), "the page")
            yield page
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _answers(port: int) -> bool:
    try:
        _asked(port, "/login")
    except OSError:
        return False
    return True


def _asked(port: int, path: str) -> tuple[float, float]:
    """Until the first octet, and until the last, ms."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    begun = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    first = time.perf_counter() - begun
    answer.read()
    whole = time.perf_counter() - begun
    connection.close()
    if answer.status >= 400:
        raise SystemExit(f"{path}: {answer.status}")
    return first * 1000, whole * 1000


def _painted(window: Browser, path: str) -> tuple[float, float]:
    """Until the first contentful paint, and until all is there, ms."""
    begun = time.perf_counter()
    window.go(path)
    whole = (time.perf_counter() - begun) * 1000
    return float(window.until(lambda: window.run(_PAINT), "a paint")), whole


def _figures(ask: Callable[[], tuple[float, float]], rounds: int) -> dict[str, Sequence[float]]:
    found = [ask() for _ in range(rounds)]
    firsts, wholes = zip(*found, strict=True)
    return {
        "first": (round(statistics.median(firsts), 1), round(max(firsts), 1)),
        "whole": (round(statistics.median(wholes), 1), round(max(wholes), 1)),
    }


def measure(port: int, rounds: int) -> None:
    """Print a line for each page and way."""
    for path in PAGES:
        figures = _figures(lambda path=path: _asked(port, path), rounds)  # type: ignore[misc]
        print(json.dumps({"page": path, "by": "http", **figures}), flush=True)
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        print("no Chromium here", file=sys.stderr)
        return
    with (
        tempfile.TemporaryDirectory() as profile,
        browser(f"http://127.0.0.1:{port}", Path(profile)) as window,
    ):
        window.go("/")
        for path in PAGES:
            figures = _figures(lambda path=path: _painted(window, path), rounds)  # type: ignore[misc]
            print(json.dumps({"page": path, "by": "chromium", **figures}), flush=True)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipients", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        given = json.loads(options.child)
        kit.run(make(Path(given["root"]), given))
        return
    with kit.workplace(options.keep) as root:
        if not (root / "queue" / "MANIFEST").exists():
            print(json.dumps(kit.child(__file__, root=str(root), recipients=options.recipients)), flush=True)
        print(json.dumps({"load": round(os.getloadavg()[0], 1)}), flush=True)
        with served(root) as port:
            measure(port, options.rounds)


if __name__ == "__main__":
    main()
