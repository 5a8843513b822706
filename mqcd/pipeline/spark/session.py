"""A Spark session that suits a small machine.

Where each choice comes from; of several sources in a row the first one that is set counts:

| | a session that starts here | under spark-submit, whose Java runs already |
|---|---|---|
| master | spark.master in `settings`, `master`, `local[*]` | its --master |
| settings | `settings`, DEFAULTS | its --conf, `_SILENT`; for SQL settings that it leaves open, the same |
| address | spark.driver.host and .bindAddress in `settings`, SPARK_LOCAL_IP, loopback | its own |
| Java, 17 or later | JAVA_HOME, `java` in PATH | its own |
| Spark | SPARK_HOME and SPARK_CONF_DIR, the package's | its own |
| jars in front | those of `gateway.FIRST`, if Spark is the package's | its own |
| kept classes | `classes`, if Spark is the package's, and only DEFAULTS sets what `_java` looks at | none |
| Python of the tasks | PYSPARK_PYTHON, this interpreter | the same |
| what they import from | `environment` in queue.helper.pipe, PYTHONSAFEPATH in Java | of tasks the same |

A session that exists already (notebook) keeps all that it has: with `sources` it gets the two data sources,
and the one setting that they need.

What is undone at the end:

| what | by |
|---|---|
| the session | `running` stops it, unless it was there before |
| its Java | ends with this process; before, with `running`, where it keeps classes (`starting_from`) |
| settings of `little_work` | have their values from before again |
| JAVA_HOME, SPARK_LOCAL_IP, PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON | stay as set: Spark reads them again |

Raises PipelineUnavailable, whose text names the package to install, and WorkFailed for what Spark throws.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mqcd.pipeline.spark import gateway
from mqcd.pipeline.spark.class_archive import archive_of, starting_from
from mqcd.pipeline.spark.requirements import check_packages, find_java
from mqcd.queue.helper.pipe import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""In the environment of what spark-submit starts."""
_MASTER = "spark.master"
_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
_MEMORY = "spark.driver.memory"
_PARTITIONS = "spark.sql.shuffle.partitions"

_JAVA = (
    # Spark makes new code for each job, and the better compiler did not earn what it costs: without it a
    # batch of a stream takes two thirds of the processor time, five million events three quarters to four
    # fifths (tests/bench/pipeline.py). But then Java leaves room for a fifth of the code only, and stops
    # compiling when that is full.
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"
    # Java's own messages go to standard error, for standard output is ours.
    " -Xlog:disable -Xlog:all=warning:stderr"
    f" -Dlog4j2.configurationFile={gateway.LOGGING}"
)
"""Options of the Java that starts here. May be edited freely: an archive of classes is kept for these options
alone (`_java`)."""
_SILENT: Mapping[str, str] = {
    # No web page, and so no port.
    "spark.ui.enabled": "false",
    # Standard error has a progress line of ours.
    "spark.ui.showConsoleProgress": "false",
}
"""Also under spark-submit, where nothing else was chosen."""
DEFAULTS: Mapping[str, str] = {
    **_SILENT,
    # Hours and days of the tables are those of UTC.
    "spark.sql.session.timeZone": "UTC",
    # Above 32 GB Java keeps addresses in another form, and classes too.
    _MEMORY: "1536m",
    _OPTIONS: _JAVA,
    # Spark's 200 are for a cluster: here a task would take longer to begin than to end.
    _PARTITIONS: "8",
    # The least number of parts in which files are read.
    "spark.default.parallelism": "4",
    # A batch has few days: their files are written side by side, and no rows are sorted for that.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # What becomes a frame of pandas, in notebooks too, comes in columns.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Below this many groups sketches are kept in a hash table; above it all rows would be sorted first.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "50000",
    # Beyond so many files they would be listed by tasks, which costs more than it saves.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Java's own: with ICU's come seconds of tables for what no address has.
    "spark.sql.icu.caseMappings.enabled": "false",
    # As Arrow writes them, with statistics; Spark's own form has none.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # An overflow or a wrong cast is an error, whatever SPARK_ANSI_SQL_MODE says.
    "spark.sql.ansi.enabled": "true",
}
"""For 2 processors and less than 4 GB, Python workers included; `--set NAME=VALUE` overrides. Only memory and
options decide how Java itself starts; Spark reads all else, and no archive of classes depends on it."""
_FEW: Mapping[str, str] = {_PARTITIONS: "1", "spark.sql.files.minPartitionNum": "2"}
"""The same for jobs with little to do, see `little_work`."""


# ------------------------------------------------------------ for callers


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
        _set_environment()
        start = _configure_submitted if _SUBMITTED in os.environ else _start
        active = start(master, {**DEFAULTS, **(settings or {})}, name)
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

    | in this order | because |
    |---|---|
    | `_java`, `archive_of`: are classes kept for the Java to come? | its options can be chosen no later |
    | `starting_from` gives options, which go into `settings` | `_start` passes all `settings` to Java |
    | `session` starts Java, unless this process has one | a Java that runs keeps its own options |
    | the block; the session is stopped | Java keeps its classes when it ends, with nothing under way |
    | `starting_from` ends Java, if it keeps classes | the archive is put in place behind it |

    Where Java runs without a session the options have no effect: it starts nothing from kept classes, and
    with `keep` a warning says that nothing was made.
    """
    check_packages()
    from pyspark.sql import SparkSession

    lent = SparkSession.getActiveSession() is not None
    settings = dict(settings or {})
    java = None if lent else _java(master, settings)
    archive = None if classes is None or java is None else archive_of(classes, java)
    with starting_from(archive, make=keep, keeping=keeping) as options, gateway.explained():
        if options:
            # Replaces no options of the caller's: with them there is no archive (`_java`).
            settings[_OPTIONS] = f"{_JAVA} {options}"
        spark = session(master=master, settings=settings, name=name, sources=sources)
        try:
            yield spark
        finally:
            if not lent:
                spark.stop()


@contextmanager
def little_work(spark: SparkSession) -> Iterator[None]:
    """In the block jobs have few tasks (`_FEW`), unless other numbers than DEFAULTS were chosen: more of them
    take longer to begin than to end."""
    # None is a setting that nobody has made.
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


# ------------------------------------------------------------ a new session


def _java(master: str | None, settings: Mapping[str, str]) -> str | None:
    """How the Java that starts now is started, as a part of the key of its archive; None where that is not
    known here, as the caller or the environment decides it.

    A mistake costs speed alone. What else may change Java's start (other settings, JDK_JAVA_OPTIONS) is not
    looked for: Java itself compares an archive with its own start, and does without one that does not fit.
    """
    chosen = master or {_MASTER, _OPTIONS, _CLASS_PATH} & settings.keys()
    if chosen or _SUBMITTED in os.environ or not gateway.is_the_packages():
        return None
    return f"{_JAVA} {settings.get(_MEMORY, DEFAULTS[_MEMORY])}"


def _set_environment() -> None:
    """What Spark reads from the environment when its Java starts."""
    if _SUBMITTED not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java(os.environ))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _start(master: str | None, settings: Mapping[str, str], name: str) -> SparkSession:
    """With a Java of its own."""
    address = os.environ["SPARK_LOCAL_IP"]
    front = {}
    if gateway.is_the_packages():
        # Another one, or its configuration, may have jars of its own in front.
        front = {_CLASS_PATH: os.pathsep.join(map(str, gateway.in_front()))}
    settings = {
        "spark.app.name": name,
        _MASTER: master or "local[*]",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        **front,
        **settings,
    }
    gateway.start(settings)
    return _build(name, settings)


def _configure_submitted(_master: str | None, settings: Mapping[str, str], name: str) -> SparkSession:
    """In the Java of spark-submit.

    Where and how Spark runs (master, memory, parallelism) is decided there, also by saying nothing. Ours are
    two kinds of settings that it leaves open: those of `_SILENT`, which count from before Spark starts, and
    those of the session (`spark.sql.`), which may be set at any time.
    """
    spark = _build(name, gateway.quieten(_SILENT))
    given = spark.sparkContext.getConf()
    for key, value in settings.items():
        if key.startswith("spark.sql.") and not given.contains(key):
            spark.conf.set(key, value)
    return spark


def _build(name: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    # Spark starts its Python workers with `-m`, so they import from Spark's current directory.
    here = environment()
    paths = {f"spark.executorEnv.{key}": here[key] for key in ("PYTHONSAFEPATH", "PYTHONPATH") if key in here}
    return SparkSession.builder.appName(name).config(map={**paths, **settings}).getOrCreate()


def _register(spark: SparkSession) -> None:
    from mqcd.pipeline.sources.events import EventsSource
    from mqcd.pipeline.sources.queue import QueueSource

    # A source that takes conditions is an error without it.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(EventsSource)
    spark.dataSource.register(QueueSource)
