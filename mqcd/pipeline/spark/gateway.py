"""Spark's Java: which jars it looks into, its start, what it says on standard error, why it gave up, its end.

Java warns of a module that Spark itself asks for, and nothing can be set against that: its standard error
comes through a pipe, which leaves this line out. Under spark-submit, where Java runs already, logging is made
that of `log4j2.properties`, unless another is set. Java ends by private attributes of pyspark, which has no
others for it; `requirements` says of which versions these are, and tests/pipeline uses them in each run.

Raises WorkFailed for what Spark throws.
"""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mqcd.core.errors import MqcdError

FIRST = (
    "spark-catalyst_", "spark-sql_", "spark-core_", "scala-library-", "spark-sql-api_", "scala-reflect-",
    "parquet-column-", "log4j-core-", "jackson-databind-", "hadoop-client-api-", "parquet-jackson-",
    "janino-", "arrow-vector-", "spark-config_", "parquet-encoding-", "hadoop-client-runtime-",
)  # fmt: skip
"""How the jars begin that most classes come from. Java looks into all 280, one after the other, in whatever
order the disk has them: with these in front a small batch takes a twentieth less time."""
LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
"""How Spark logs here."""
_NOISE = (b"WARNING: Using incubator modules:",)
_PATIENCE = 5.0
"""Seconds for what Java said last."""
_END_S = 120
"""Seconds for Java to end in, with what it keeps."""


class WorkFailed(MqcdError):
    """Spark gave up; the text is its reason, the rest stands in its log. What a batch began is undone."""


def is_the_packages() -> bool:
    """Whether Spark is the one that came with the package."""
    return not {"SPARK_HOME", "SPARK_CONF_DIR"} & os.environ.keys()


def jars() -> list[Path]:
    """All of them in the order of Java's class path, as Java lists a directory."""
    return [*in_front(), *_directory().iterdir()]


def in_front() -> list[Path]:
    """The jars that Java looks into first."""
    return [jar for name in FIRST for jar in _directory().glob(f"{name}*.jar")]


def _directory() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def start(settings: Mapping[str, str]) -> None:
    """Start the Java that the next session uses, unless one runs. Raises what pyspark raises."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf().setAll(list(settings.items()))
    said, says = os.pipe()
    passing = threading.Thread(target=pass_on, args=(said, 2), name="java-stderr", daemon=True)
    passing.start()
    try:
        with _safe_path():
            gateway = launch_gateway(conf, {"stderr": says})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(says)
        # Why it did not start.
        passing.join(_PATIENCE)
        raise
    os.close(says)
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _safe_path() -> Iterator[None]:
    """In the block PYTHONSAFEPATH is set. Java starts Pythons that look sources up in its own environment: of
    what is set for executors they have nothing, and would import from the working directory."""
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def pass_on(said: int, target: int) -> None:
    """Copy lines from one descriptor to another until the first one ends, without the noise."""
    with os.fdopen(said, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                # A reader that has gone must not end Java.
                with suppress(OSError):
                    os.write(target, line)


def quieten(settings: Mapping[str, str]) -> dict[str, str]:
    """Have the Java of spark-submit log as ours does; gives what it left open of `settings` that can still
    be said before Spark starts."""
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    with suppress(Py4JError):
        # Else Spark sets its logging again when its context starts; this is its own way to do so before.
        submit = getattr(jvm.org.apache.spark.deploy, "SparkSubmit$")
        getattr(submit, "MODULE$").initializeForcefully(False, True)
    core = jvm.org.apache.logging.log4j.core
    source = jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration()
    chosen = source.getConfigurationSource().getLocation()
    if chosen is None or "log4j2-defaults" in chosen:
        core.config.Configurator.reconfigure(jvm.java.net.URI(LOGGING))
    given = SparkConf()
    return {key: value for key, value in settings.items() if not given.contains(key)}


@contextmanager
def explained() -> Iterator[None]:
    """Raises WorkFailed for what Spark throws in the block."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        found = reason(str(error))
        if os.strerror(errno.ENOSPC) in found:
            directory = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir())
            found += (
                f". Make room where the tables lie, or in {directory}, and run it again: nothing has changed"
            )
        raise WorkFailed(f"Spark gave up: {found}") from error


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


def end() -> int:
    """Have the Java of a session that was stopped end now, not with this process; gives its exit code."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        code: int = gateway.proc.wait(_END_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        code = gateway.proc.wait()
    return code


def kill() -> None:
    """End the Java that this process has started, if it did, whatever it does."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        gateway.proc.kill()
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None
