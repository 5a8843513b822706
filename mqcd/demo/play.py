"""The demonstration from beginning to end: send, watch, show, check, stop.

Gives 0 when everything happened as it should, 1 when anything did not; then the directory with queue and
log is kept and named. It takes some five seconds, and gives up after LIMIT_SECONDS.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import shutil
import smtplib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from mqcd.core.errors import ConfigError
from mqcd.core.ports import Clock
from mqcd.daemon.host.loop import loop_factory
from mqcd.daemon.process import tune_interpreter
from mqcd.demo import analysis, checks
from mqcd.demo.checks import Finding
from mqcd.demo.letters import SENDER, Letter, letters
from mqcd.demo.screen import Screen, Stories
from mqcd.demo.stage import Stage, set_up
from mqcd.demo.watching import Watch
from mqcd.net.clock import SystemClock
from mqcd.queue.helper.pipe import environment

LIMIT_SECONDS = 25
PAUSE_MS = 150
"""Between two messages, so that a watcher sees them come."""
_LOOK_MS = 50

_SHOWN = (
    "mqcd_recipients_",
    "mqcd_attempts_total",
    "mqcd_reports_total",
    "mqcd_queue_recipients",
    "mqcd_syncs_total",
)


def run(keep: Path | None = None, *, pipeline: bool = False) -> int:
    """Play it on standard output; gives the exit code. `keep`: where queue, log and events are to stay;
    `pipeline`: end with the report that Spark makes of it, which stays in any case.

    Raises ConfigError for a directory that holds something, PipelineUnavailable where Spark cannot run.
    """
    if pipeline:
        analysis.check()
    tune_interpreter()
    directory = keep.absolute() if keep is not None else Path(tempfile.mkdtemp(prefix="mqcd-demo-"))
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise ConfigError(f"{directory} is not empty; name a directory that is, or one to be made")
    screen = Screen(Console(highlight=False))
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            findings = runner.run(_play(screen, directory))
        if pipeline:
            findings += analysis.show(screen, directory, SystemClock())
    except KeyboardInterrupt:
        _tidy(directory, keep, spare=None)
        raise
    good = all(finding.good for finding in findings)
    screen.title("Was it as it should be?")
    screen.findings(findings)
    if not good:
        screen.say(f"\nQueue, events and log are left in {directory}")
        return 1
    report = directory / analysis.NAME if pipeline else None
    _tidy(directory, keep, spare=report)
    if report is not None:
        screen.title("The report, for any browser")
        screen.plain([str(report)])
    _what_next(screen, keep)
    return 0


def _tidy(directory: Path, keep: Path | None, *, spare: Path | None) -> None:
    """Remove the files that no option keeps."""
    if keep is not None:
        return
    if spare is None:
        shutil.rmtree(directory)
        return
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != spare:
            path.unlink()


async def _play(screen: Screen, directory: Path) -> list[Finding]:
    clock = SystemClock()
    mail = letters()
    watch = Watch(mail)
    findings: list[Finding] = []
    try:
        async with asyncio.timeout(LIMIT_SECONDS), set_up(directory, clock, watch) as stage:
            _begin(screen, stage)
            with screen.live(Stories(watch.stories, clock)):
                for letter in mail:
                    await asyncio.to_thread(_send, stage.smtp_port, letter)
                    await clock.sleep(PAUSE_MS)
                await watch.until(lambda: watch.complete)
            screen.end_of_live()
            findings += await _show(screen, stage, clock)
            before = clock.monotonic()
            await stage.server.stop()
            stopped = clock.monotonic() - before
            listed = await _listed(stage)
            findings.append(checks.waiting(listed, f"after the server stopped, in {stopped / 1000:.1f} s"))
            findings.append(checks.arrivals(mail, stage.arrived))
            findings.append(checks.reports(stage.arrived))
    except TimeoutError:
        findings.append(Finding(good=False, text=f"not done after {LIMIT_SECONDS} s"))
    except (OSError, smtplib.SMTPException) as error:
        findings.append(Finding(good=False, text=f"{type(error).__name__}: {error}"))
    return [checks.ends(watch.stories), *findings]


def _begin(screen: Screen, stage: Stage) -> None:
    screen.title("A mail queue server at work, on loopback")
    screen.say(
        f"You send by SMTP to port {stage.smtp_port}. The next hop is a receiver on port {stage.sink_port}:\n"
        "it takes most mail, puts off one recipient once and one every time (4xx),\n"
        "and refuses one for good (550)."
    )
    screen.say()


def _send(port: int, letter: Letter) -> None:
    """As any mail program does; raises what smtplib raises, also for one refused recipient of several."""
    with smtplib.SMTP("127.0.0.1", port, local_hostname="desk.here.example", timeout=10) as client:
        refused = client.sendmail(SENDER, letter.recipients, letter.content, letter.options)
    if refused:
        raise smtplib.SMTPRecipientsRefused(refused)


async def _show(screen: Screen, stage: Stage, clock: Clock) -> list[Finding]:
    """One exhibit after another, while the server runs; gives what was found on the way."""
    screen.title("The report that came back")
    for message in stage.arrived:
        if not message.sender:
            screen.report(message.content)

    screen.title("What waits: mqcd queue ls")
    screen.raw(await _command(screen, stage, "queue", "ls"))
    listed = await _listed(stage)

    screen.title(f"Figures: http://127.0.0.1:{stage.server.ops_port}/metrics")
    metrics = await asyncio.to_thread(_metrics, stage.server.ops_port)
    screen.lines(f"{name} {value:g}" for name, value in metrics.items() if name.startswith(_SHOWN))

    screen.title("For the record: the first file in events, one JSON object per event")
    screen.events(await _events(stage.settings.ops.events.rootpath, clock))
    return [checks.waiting(listed, "while the server runs"), checks.ledger(metrics)]


async def _command(screen: Screen | None, stage: Stage, *words: str) -> str:
    """The output of a command run as by a user, in colour if the screen supports it."""
    variables = environment()
    if screen is not None:
        variables["COLUMNS"] = str(screen.console.width)
        # The table that people get, though what the command writes to is a pipe.
        variables["FORCE_COLOR"] = "1"
        if not screen.console.is_terminal:
            variables["NO_COLOR"] = "1"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mqcd", "-c", str(stage.conf), *words,
        stdout=asyncio.subprocess.PIPE, env=variables,
    )  # fmt: skip
    said, _ = await process.communicate()
    return said.decode()


async def _listed(stage: Stage) -> Sequence[dict[str, object]]:
    return [json.loads(line) for line in (await _command(None, stage, "queue", "ls", "--json")).splitlines()]


def _metrics(port: int) -> dict[str, float]:
    """The page of metrics, as any scraper gets it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
    finally:
        connection.close()
    lines = [line for line in page.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def _events(directory: Path, clock: Clock) -> list[str]:
    """The first event file, which comes when its piece of the journal is sealed."""
    while not (lines := await asyncio.to_thread(_first_file, directory)):
        await clock.sleep(_LOOK_MS)
    return lines


def _first_file(directory: Path) -> list[str]:
    files = sorted(directory.glob("*.jsonl.gz"))
    return gzip.decompress(files[0].read_bytes()).decode().splitlines() if files else []


def _what_next(screen: Screen, keep: Path | None) -> None:
    screen.title("What to try next")
    if keep is not None:
        screen.say(f"mqcd -c {keep}/conf/mqcd.xml queue ls")
    else:
        screen.say("mqcd demo --keep DIR    the same; queue, log and events stay in DIR")
    screen.say(
        "mqcd -c FILE check      what your own mqcd.xml means (README.md has a short one)\n"
        "mqcd -c FILE run        the server: SMTP in, queue on disk, SMTP out\n"
        "mqcd sink --help        the receiver, to test your server against"
    )
