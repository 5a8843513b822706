"""A Spark session that suits a small machine, or a clear word about what it lacks (`requirements`).

Spark binds to loopback unless SPARK_LOCAL_IP says otherwise, runs `local[*]` unless a master is given, counts
in UTC, and its Python workers are the interpreter that runs this, so that they find the same packages. A
session that exists already (notebook) keeps its settings: with `sources` it gets the two data sources, and
the one setting that they need. Under spark-submit its own options come before all this.

Raises PipelineUnavailable, whose text names the package to install, and WorkFailed for what Spark throws.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mqcd.core.errors import MqcdError
from mqcd.pipeline.spark import gateway
from mqcd.pipeline.spark.class_archive import archive_of, starting_from
from mqcd.pipeline.spark.gateway import in_front, is_the_packages
from mqcd.pipeline.spark.requirements import check_packages, find_java
from mqcd.queue.helper.pipe import environment


class WorkFailed(MqcdError):
    """Spark gave up; the text is its reason, the rest stands in its log. What a batch began is undone."""


@contextmanager
def explained() -> Iterator[None]:
    """Raises WorkFailed for what Spark throws in the block."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise WorkFailed(f"Spark gave up: {why(str(error))}") from error


def reason(text: str) -> str:
    """The one line of Spark's output that says why: a Python worker's error, else Java's first cause."""
    lines = text.splitlines()
    traces = [index for index, line in enumerate(lines) if line.startswith("Traceback ")]
    if traces:
        # Frames are indented, what was raised is not.
        raised = (line for line in lines[traces[-1] + 1 :] if line.strip() and not line[0].isspace())
        return next(raised, lines[-1]).strip()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else next(filter(None, map(str.strip, lines)), "no reason given")


def why(text: str) -> str:
    """The same, and what to do where that is known."""
    found = reason(text)
    if os.strerror(errno.ENOSPC) not in found:
        return found
    directory = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir())
    return (
        f"{found}. Make room where the tables lie, or in {directory}, and run it again: nothing has changed"
    )


if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

_LOOPBACK = "127.0.0.1"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set in what spark-submit starts: its Java runs already."""
_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
_MEMORY = "spark.driver.memory"
"""Above 32 GB Java keeps addresses in another form, and classes too."""
_PARTITIONS = "spark.sql.shuffle.partitions"
_FEW: Mapping[str, str] = {_PARTITIONS: "1", "spark.sql.files.minPartitionNum": "2"}
"""Settings of jobs with little to do, see `little_work`."""


_JAVA = (
    # Spark makes new code for each job, and the better compiler did not earn what it costs: without it a
    # batch of a stream takes two thirds of the processor time, five million events three quarters to four
    # fifths. But then Java leaves room for a fifth of the code only, and stops compiling when that is full.
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"
    # What Java has to say itself: standard output is ours.
    " -Xlog:disable -Xlog:all=warning:stderr"
    f" -Dlog4j2.configurationFile={gateway.LOGGING}"
)
_SILENT: Mapping[str, str] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
DEFAULTS: Mapping[str, str] = {
    **_SILENT,
    "spark.sql.session.timeZone": "UTC",
    _MEMORY: "1536m",
    _OPTIONS: _JAVA,
    _PARTITIONS: "8",
    "spark.default.parallelism": "4",
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Below this many groups sketches are kept in a hash table; above it all rows would be sorted first.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "50000",
    # Beyond so many files they would be listed by tasks, which costs more than it saves.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Java's own: with ICU's come seconds of tables for what no address has.
    "spark.sql.icu.caseMappings.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.ansi.enabled": "true",
}
"""For 2 processors and less than 4 GB, Python workers included; `--set NAME=VALUE` overrides."""


def session(
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    name: str = "mqcd",
    sources: bool = True,
) -> SparkSession:
    """The active session, else a new one. Raises PipelineUnavailable.

    `sources`: with `mqcd-events` and `mqc`, each use of which starts Python three times more.
    """
    check_packages()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        _prepare()
        active = _start(master, {**DEFAULTS, **(settings or {})}, name)
    if sources:
        _register(active)
    return active


@contextmanager
def running(
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    name: str = "mqcd",
    sources: bool = True,
    classes: Path | None = None,
    keep: bool = False,
    keeping: Callable[[], None] = lambda: None,
) -> Iterator[SparkSession]:
    """The same for as long as the block lasts: a session that was there before outlives it.

    `classes`: where Java's classes are kept, to start with. `keep`: where nothing is kept yet, have it keep
    them, which takes some seconds at the end: before that `keeping` is called. Also raises WorkFailed, for
    what Spark throws in the block.
    """
    check_packages()
    from pyspark.sql import SparkSession

    lent = SparkSession.getActiveSession() is not None
    settings = dict(settings or {})
    archive = None
    if classes is not None and not (lent or master) and _is_ours(settings):
        archive = archive_of(classes, settings.get(_MEMORY, ""))
    with starting_from(archive, make=keep, keeping=keeping) as options, explained():
        if options:
            settings[_OPTIONS] = f"{_JAVA} {options}"
        spark = session(master=master, settings=settings, name=name, sources=sources)
        try:
            yield spark
        finally:
            if not lent:
                spark.stop()


@contextmanager
def little_work(spark: SparkSession) -> Iterator[None]:
    """In the block jobs have few tasks, unless others than these were chosen: more of them take longer to
    begin than to end."""
    before = {name: spark.conf.get(name, None) for name in _FEW}
    ours = [name for name, value in before.items() if value == DEFAULTS.get(name)]
    for name in ours:
        spark.conf.set(name, _FEW[name])
    try:
        yield
    finally:
        for name in ours:
            value = before[name]
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def _prepare() -> None:
    """What Spark reads from the environment when its Java starts."""
    if _SUBMITTED not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java(os.environ))
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _start(master: str | None, settings: Mapping[str, str], name: str) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    # Spark starts its Python workers with `-m`, so they import from Spark's current directory.
    for key in ("PYTHONSAFEPATH", "PYTHONPATH"):
        if (value := environment().get(key)) is not None:
            builder = builder.config(f"spark.executorEnv.{key}", value)
    if _SUBMITTED in os.environ:
        for key, value in gateway.quieten(_SILENT).items():
            builder = builder.config(key, value)
        return _as_submitted(builder.getOrCreate(), settings)
    address = os.environ["SPARK_LOCAL_IP"]
    if is_the_packages():
        # Nothing is put in front by the environment.
        settings = {_CLASS_PATH: os.pathsep.join(map(str, in_front()))} | dict(settings)
    settings = {
        "spark.app.name": name,
        "spark.master": master or "local[*]",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
    } | dict(settings)
    gateway.start(settings)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _is_ours(settings: Mapping[str, str]) -> bool:
    """Whether nothing else sets how Java starts."""
    return (
        not {_OPTIONS, _CLASS_PATH} & settings.keys() and is_the_packages() and _SUBMITTED not in os.environ
    )


def _as_submitted(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Where and how it runs spark-submit has said. What that left open is set, as far as Spark still can."""
    given = spark.sparkContext.getConf()
    for key, value in settings.items():
        if key.startswith("spark.sql.") and not given.contains(key):
            spark.conf.set(key, value)
    return spark


def _register(spark: SparkSession) -> None:
    from mqcd.pipeline.sources.events import EventsSource
    from mqcd.pipeline.sources.queue import QueueSource

    # A source that takes conditions is an error without it.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(EventsSource)
    spark.dataSource.register(QueueSource)
