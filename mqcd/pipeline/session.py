"""A Spark session that suits a small machine, or a clear word about what it lacks.

Looked for before Spark starts: the Python packages of the extra `pipeline`, and Java 17 or later under
JAVA_HOME, else in PATH. Spark binds to loopback unless SPARK_LOCAL_IP says otherwise, runs `local[*]`
unless told a master, counts in UTC, and its Python workers are the interpreter that runs this, so that
they find the same packages. A session that exists already (notebook) is used as it is; under spark-submit
what that was told goes before all this.

Raises PipelineUnavailable, whose text names the package to install, and WorkFailed for what Spark throws.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from mqcd.core.errors import MqcdError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

JAVA_PACKAGE = "default-jre-headless"
"""Debian's name of a Java that Spark runs on."""
_JAVA_LEAST = 17
_NEEDS = {"pyspark": (4, 5), "pyarrow": (15, None), "pandas": (2, 3)}
"""Least major version, and the first that is too new: as in the extra `pipeline`."""
_LOOPBACK = "127.0.0.1"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set in what spark-submit starts: its Java runs already."""


def _java(options: str) -> str:
    return f"{options} -Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"


DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1536m",
    "spark.driver.extraJavaOptions": _java("-XX:+UseParallelGC"),
    "spark.sql.shuffle.partitions": "8",
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
SHORT: Mapping[str, str] = {
    "spark.driver.extraJavaOptions": _java("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
}
"""For little work: what Java's better compiler gains it never earns (a quarter less processor time), and more
tasks take longer to begin than to end (a tenth less)."""
LITTLE = 16 << 20
"""Octets of event files up to which work is little: some 300,000 events."""
FIRST = (
    "spark-catalyst_", "spark-sql_", "spark-core_", "scala-library-", "spark-sql-api_", "scala-reflect-",
    "parquet-column-", "log4j-core-", "jackson-databind-", "hadoop-client-api-", "parquet-jackson-",
    "janino-", "arrow-vector-", "spark-config_", "parquet-encoding-", "hadoop-client-runtime-",
)  # fmt: skip
"""How the jars begin that most classes come from. Java looks into all 280, one after the other, in whatever
order the disk has them: with these in front a small batch takes a twentieth less time."""


class PipelineUnavailable(MqcdError):
    """Spark cannot run here: a package or Java is missing. Fault: who set the machine up."""


class WorkFailed(MqcdError):
    """Spark gave up; the text is its reason, the rest stands in its log. What a batch began is undone."""


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
) -> Iterator[SparkSession]:
    """The same for as long as the block lasts: a session that was there before outlives it.

    Also raises WorkFailed, for what Spark throws in the block.
    """
    check_packages()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    lent = SparkSession.getActiveSession() is not None
    spark = session(master=master, settings=settings, name=name, sources=sources)
    try:
        yield spark
    except (PySparkException, Py4JError) as error:
        raise WorkFailed(f"Spark gave up: {reason(str(error))}") from error
    finally:
        if not lent:
            spark.stop()


def reason(text: str) -> str:
    """The one line of what Spark says that tells why: a Python worker's error, else Java's first cause."""
    lines = text.splitlines()
    traces = [index for index, line in enumerate(lines) if line.startswith("Traceback ")]
    if traces:
        # Frames are indented, what was raised is not.
        raised = (line for line in lines[traces[-1] + 1 :] if line.strip() and not line[0].isspace())
        return next(raised, lines[-1]).strip()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else next(filter(None, map(str.strip, lines)), "no reason given")


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
    if _SUBMITTED in os.environ:
        return _as_submitted(builder.getOrCreate(), settings)
    address = os.environ["SPARK_LOCAL_IP"]
    builder = builder.master(master or "local[*]")
    if not {"SPARK_HOME", "SPARK_CONF_DIR"} & os.environ.keys():
        # Spark is the package's own: nobody has put anything in front.
        settings = {"spark.driver.extraClassPath": os.pathsep.join(map(str, in_front()))} | dict(settings)
    builder = builder.config("spark.driver.host", address).config("spark.driver.bindAddress", address)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def in_front() -> list[Path]:
    """Jars of the package's own Spark, for Java to look into first."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    return [jar for name in FIRST for jar in jars.glob(f"{name}*.jar")]


def _as_submitted(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Where and how is what spark-submit said. Ours is what it left open, as far as Spark can be told yet."""
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


def check_packages(versions: Mapping[str, str] | None = None) -> None:
    """See that the extra is installed, in versions that go together. Raises PipelineUnavailable."""
    for package, (least, beyond) in _NEEDS.items():
        found = _version(package) if versions is None else versions.get(package)
        if found is None:
            raise PipelineUnavailable("mqcd pipeline needs the extra: pip install 'mqcd[pipeline]'")
        major = int(found.split(".", 1)[0])
        if major < least or (beyond is not None and major >= beyond):
            raise PipelineUnavailable(
                f"mqcd pipeline does not work with {package} {found}: pip install 'mqcd[pipeline]'"
            )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def find_java(environ: Mapping[str, str]) -> Path:
    """The home of the Java to use: JAVA_HOME, else that of `java` in PATH. Raises PipelineUnavailable."""
    install = f"install Java {_JAVA_LEAST} or later (Debian: apt-get install {JAVA_PACKAGE})"
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise PipelineUnavailable(f"JAVA_HOME={home} holds no bin/java; correct it, or {install}")
    else:
        found = shutil.which("java", path=environ.get("PATH"))
        if found is None:
            raise PipelineUnavailable(f"mqcd pipeline needs Java: {install}, or set JAVA_HOME")
        java = Path(found).resolve()
    version = java_version(java)
    if version < _JAVA_LEAST:
        raise PipelineUnavailable(f"{java} is Java {version or 'of an unknown version'}: {install}")
    return java.parent.parent


def java_version(java: Path) -> int:
    """Its major version; 0 when it does not say."""
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    # Until 8 it called itself 1.8.
    said = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(said[1]) if said else 0
