"""The commands of `pipeline`: the event log and the queue's files, read with Spark."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqcd.cli.options import (
    DELAYS,
    DURATION,
    SIZE,
    Place,
    as_json,
    at_place,
    counted,
    json_line,
    show,
    takes_place,
)
from mqcd.cli.progress import waiting
from mqcd.cli.upkeep import drop_to_owner, drop_to_server, options_at
from mqcd.net.clock import SystemClock

if TYPE_CHECKING:
    from mqcd.config.load import Loaded
    from mqcd.config.settings import Settings
    from mqcd.core.progress import Progress
    from mqcd.pipeline.spark.session import SparkSession
    from mqcd.pipeline.store.store import Store
    from mqcd.stores.queue.moment import Moment

NAMES = ("events", "damaged", "recipients", "ledger", "sites", "senders", "replies", "queue_age")
_KEEPING = "all done; keeping Java's classes, once, so that it starts sooner from now on: some 20 s"
_DAYS = 30
"""How far back a report and outages go."""


@click.group(short_help="Analyse the event log with Spark.")
@takes_place()
def pipeline() -> None:
    """Make tables of the event log with Spark; needs mqcd[pipeline] and Java."""


def on_spark(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command at a place, with --json and the flags that say where Spark runs."""
    master = click.option("--master", metavar="URL", help="Where Spark runs.  [local[*]]")
    chosen = click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, callback=_settings,
                          help="Spark setting; repeatable.")  # fmt: skip
    return master(chosen(as_json(at_place(command))))


def _settings(_context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    if any("=" not in pair for pair in pairs):
        raise click.BadParameter("not NAME=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


@pipeline.command("run")
@on_spark
def run(place: Place, master: str | None, settings: dict[str, str], as_json: bool) -> None:
    """Add new event files to the tables."""
    loaded, store = _tables(place)
    from mqcd.pipeline.batch.run import is_waiting, take_new
    from mqcd.pipeline.store.store import NOTHING

    with ExitStack() as locked:
        # This finishes what a batch that was killed had committed, before Spark's start, which takes seconds.
        last = locked.enter_context(store.writing())
        if not is_waiting(last, loaded.settings.ops.events.rootpath):
            _show_run(last.batch, NOTHING, as_json=as_json)
            return
        # A second run suggests more to come: Java's classes are archived, so that later runs start sooner.
        opened = _spark(place, master, settings, keeps=last.batch > 0)
        # The lock goes before Spark does: to keep classes takes long, and others may write meanwhile.
        with opened as (spark, store, server, progress), locked.pop_all():
            directory, now = server.ops.events.rootpath, SystemClock().now()
            done = take_new(spark, store, last, directory, now=now, progress=progress)
            _show_run(done.batch, NOTHING if done is last else done.counts, as_json=as_json)


def _show_run(batch: int, counts: Mapping[str, int], *, as_json: bool) -> None:
    show({"batch": batch, **counts}, _counted(counts) if counts["files"] else "nothing new", as_json)


def _counted(counts: Mapping[str, int]) -> str:
    return counted({name: counts[name] for name in ("files", "events", "damaged")})


@pipeline.command("stream", short_help="Add event files to the tables as they are closed.")
@click.option("--once", is_flag=True, help="Add what exists now, then end.")
@click.option(
    "--every",
    metavar="DURATION",
    default="1s",
    show_default=True,
    type=DURATION,
    help="Polling interval.",
)
@click.option("--maxfiles", metavar="N", type=click.IntRange(min=1), help="Most files in a batch.")
@click.option(
    "--maxsize",
    metavar="SIZE",
    default="64M",
    show_default=True,
    type=SIZE,
    help="Most octets of compressed event files in a batch; --maxfiles overrides it.",
)
@on_spark
def stream(
    place: Place, /, once: bool, every: int, maxfiles: int | None, maxsize: int, as_json: bool, **where: Any
) -> None:
    """Add event files to the tables as they are closed, until a signal comes. Other commands may read the
    tables and account for all mail meanwhile."""
    _, store = _tables(place)
    from mqcd.pipeline.store.store import Commit

    def print_counts(commit: Commit) -> None:
        text = f"batch {commit.batch}: {_counted(commit.counts)}"
        show({"batch": commit.batch, **commit.counts}, text, as_json)

    opened = _spark(place, where["master"], where["settings"], streams=True)
    with store.streaming(), opened as (spark, _, server, progress):
        from mqcd.pipeline.batch.stream import Pace, Stream

        pace = Pace(once=once, every=every, files=maxfiles, octets=maxsize)
        directory = server.ops.events.rootpath
        # After Spark's start, which has a handler of its own for SIGINT.
        with _ending() as stop:
            followed = Stream(
                spark, store, directory, clock=SystemClock(), pace=pace, done=print_counts, progress=progress
            )
            followed.follow(stop)


@contextmanager
def _ending() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, each once: a second one ends the process as it always does."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def asked(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        signal.signal(number, asked)
    try:
        yield stop
    finally:
        for number in numbers:
            signal.signal(number, before[number])


@pipeline.command("ledger")
@on_spark
def ledger(place: Place, master: str | None, settings: dict[str, str], as_json: bool) -> int:
    """Account for every recipient ever accepted."""
    from mqcd.cli.pipeline.account import show as show_account

    options = options_at(place)
    loaded, _ = _tables(place)
    from mqcd.disk.durable import Disk
    from mqcd.queue.reading.pinned import require_queue

    moment = _moment(place)
    if moment is None:
        # Reported before Spark starts.
        require_queue(Disk(), loaded.settings.queue.rootpath)
    with _spark(place, master, settings) as (spark, store, server, progress):
        from mqcd.pipeline.account.account import account, fields

        patience, now = server.deliver.watchdog, SystemClock().now()
        sums = account(
            spark,
            store,
            events=server.ops.events.rootpath,
            roots=(server.queue.rootpath, server.queue.spool.rootpath),
            source=options.source,
            progress=progress,
            now=now,
            due_before=now - patience if patience else 0,
            moment=moment,
        )
    if as_json:
        click.echo(json_line(fields(sums)), nl=False)
    else:
        show_account(sums)
    return 1 if sums.imbalance else 0


@pipeline.command("export")
@click.argument("table", type=click.Choice(NAMES))
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="CSV file, replaced if it exists.")  # fmt: skip
@on_spark
def export(
    place: Place, table: str, out: Path, master: str | None, settings: dict[str, str], as_json: bool
) -> None:
    """Write a table as one CSV file."""
    with _spark(place, master, settings) as (spark, store, _what, progress):
        from mqcd.pipeline import frames
        from mqcd.pipeline.export import export as write

        progress("exporting", 0, 0)
        with store.still():
            size = write(frames.read(spark, store, table), out)
    show({"table": table, "file": str(out), "octets": size}, f"{out}: {size} octets", as_json)


@pipeline.command("report", short_help="Show the tables as one HTML page.")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="HTML file, replaced if it exists.")  # fmt: skip
@click.option("--days", metavar="N", type=click.IntRange(1, 3650), default=_DAYS, show_default=True,
              help="Days, back from the newest event.")  # fmt: skip
@on_spark
def report(
    place: Place, out: Path, days: int, master: str | None, settings: dict[str, str], as_json: bool
) -> None:
    """Add new event files to the tables, and show them as one HTML file."""
    if not out.absolute().parent.is_dir():
        # Reported before Spark works for minutes.
        raise click.BadParameter(f"{out.parent} is no directory", param_hint="--out")
    source = options_at(place).source
    with _spark(place, master, settings) as (spark, store, server, progress):
        from mqcd.pipeline.report.make import Subject, make, write
        from mqcd.pipeline.report.summary import fields, summary

        subject = Subject(
            events=server.ops.events.rootpath,
            roots=(server.queue.rootpath, server.queue.spool.rootpath),
            source=source,
            days=days,
            overdue_ms=server.deliver.watchdog,
            moment=_moment(place),
        )
        figures = make(spark, store, subject, made=SystemClock().now(), progress=progress)
        size = write(figures, out)
    text = "\n".join([*summary(figures), f"{out}: {size} octets"])
    show({"file": str(out), "octets": size, **fields(figures)}, text, as_json)


@pipeline.command("advise", short_help="Make, list, apply or cancel advice.")
@click.option("--list", "listing", is_flag=True, help="List advice in effect, proposed and cancelled.")
@click.option("--apply", "applying", is_flag=True, help="Put the proposal in effect, without a restart.")
@click.option("--cancel", "cancelled", metavar="ID", help="Cancel one piece until its end.")
@click.option(
    "--what-if",
    "delays",
    metavar="DELAYS",
    type=DELAYS,
    default=(),
    help="Replay recorded outages with other retry delays, such as '5m | 30m | 2h'.",
)
@click.option("--days", metavar="N", type=click.IntRange(1, 3650),
              help="Days of outages, back from the newest event.  [30]")  # fmt: skip
@click.option("--most", metavar="N", type=click.IntRange(min=1), help="Suppressions to propose.  [50000]")
@on_spark
def advise(
    place: Place,
    /,
    listing: bool,
    applying: bool,
    cancelled: str | None,
    delays: tuple[int, ...],
    days: int | None,
    most: int | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Make advice from the tables; list, apply or cancel it."""
    from mqcd.cli.pipeline import advising

    chosen = listing + applying + (cancelled is not None) + bool(delays)
    if chosen > 1 or (chosen and most):
        raise click.UsageError(
            "at most one of --list, --apply, --cancel ID, --what-if DELAYS and --most N goes"
        )
    if days and not delays:
        raise click.UsageError("--days goes with --what-if DELAYS")
    if chosen and not delays:
        advising.review(place, listing, cancelled, as_json)
        return
    # Reported before Spark starts.
    _tables(place)[1].require()
    opened = _spark(place, where["master"], where["settings"])
    if delays:
        advising.what_if(opened, delays, days or _DAYS, as_json)
    else:
        advising.propose(opened, most, as_json)


def _moment(place: Place) -> Callable[[], Moment] | None:
    """What gives the contents of a queue in another store; None = it is a clustered-file queue.

    Raises ConfigError for a store that is not there.
    """
    from mqcd.config.settings import CLUSTER
    from mqcd.daemon.control.view import view_of
    from mqcd.stores.choose import find_class
    from mqcd.stores.queue.exporting import EventFiles

    settings = place.load().settings
    if settings.queue.store.kind == CLUSTER:
        return None
    # It is not made where a server answers: that may be the only one to read a file with a password.
    find_class(settings.queue.store.kind)
    options = options_at(place)
    files = EventFiles(directory=options.events, source=options.source, retention=options.retention)

    def read() -> Moment:
        with closing(view_of(settings, place.conf)) as view:
            return view.moment(files)

    return read


def _tables(place: Place) -> tuple[Loaded, Store]:
    """The configuration, and the tables that it names. Raises PipelineUnavailable."""
    from mqcd.config.settings import CLUSTER
    from mqcd.pipeline.spark.requirements import check_packages
    from mqcd.pipeline.store.store import Store

    check_packages()
    loaded = place.load()
    if loaded.settings.queue.store.kind == CLUSTER:
        drop_to_owner(loaded.settings.queue.rootpath)
    else:
        drop_to_server(loaded.settings)
    return loaded, Store(loaded.var / "pipeline")


@contextmanager
def _spark(
    place: Place,
    master: str | None,
    settings: dict[str, str],
    *,
    streams: bool = False,
    keeps: bool = False,
) -> Iterator[tuple[SparkSession, Store, Settings, Progress]]:
    """A session, the tables, the server's settings, and the progress display."""
    loaded, store = _tables(place)
    from mqcd.pipeline.spark.session import running

    place.give_way()
    with waiting(SystemClock()) as progress:
        progress("starting Spark", 0, 0)
        # Of the commands the stream alone reads through a data source.
        started = running(
            master=master,
            settings=settings,
            sources=streams,
            classes=store.classes,
            keep=keeps,
            keeping=lambda: progress(_KEEPING, 0, 0),
        )
        with started as spark:
            yield spark, store, loaded.settings, progress
            progress("ending Spark", 0, 0)
