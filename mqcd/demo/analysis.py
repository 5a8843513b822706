"""The end of `mqcd demo --pipeline`: Spark makes tables and a report of what has just happened.

Whether it can run here is asked before the play begins. Raises PipelineUnavailable.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from mqcd.config.load import load
from mqcd.core.ports import Clock
from mqcd.core.progress import no_progress
from mqcd.daemon.derived import options_of, schedule_of
from mqcd.demo.checks import Finding
from mqcd.demo.screen import Screen
from mqcd.demo.stage import HOSTNAME, conf_of

NAME = "report.html"
RECIPIENTS = 10
"""Of the play's messages and of its one report."""


def check() -> None:
    """Check that Spark can run. Raises PipelineUnavailable, whose text names what to install."""
    from mqcd.pipeline.spark.requirements import check_packages, find_java

    check_packages()
    find_java(os.environ)


def show(screen: Screen, directory: Path, clock: Clock) -> list[Finding]:
    """Write the report of a play that is over, and show what it says.

    Raises OSError, PipelineUnavailable, and what Spark raises.
    """
    from mqcd.pipeline.report.make import Subject, make, write
    from mqcd.pipeline.report.summary import summary
    from mqcd.pipeline.spark.session import running
    from mqcd.pipeline.store.store import Store

    screen.title("What Spark makes of the events: mqcd pipeline report")
    screen.say("Spark starts; this takes ten seconds and more.")
    conf = conf_of(directory)
    loaded = load(conf, var=None, hostname=HOSTNAME)
    settings = loaded.settings
    options = options_of(settings, schedule_of(settings))
    subject = Subject(
        events=settings.ops.events.rootpath,
        roots=(settings.queue.rootpath, settings.queue.spool.rootpath),
        source=options.source,
        overdue_ms=settings.deliver.watchdog,
    )
    with warnings.catch_warnings():
        # Spark leaves the pipe to its Java to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        with running(name="mqcd demo") as spark:
            figures = make(
                spark, Store(loaded.var / "pipeline"), subject, made=clock.now(), progress=no_progress
            )
    write(figures, directory / NAME)
    screen.say()
    screen.plain(summary(figures))
    account = figures.account
    good = account is not None and (account.accepted, account.imbalance) == (RECIPIENTS, 0)
    counted = account.accepted if account else 0
    text = f"the ledger, by events and files: {counted} recipients of {RECIPIENTS} accounted for"
    return [Finding(good=good, text=text)]
