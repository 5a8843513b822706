"""What is looked for before Spark starts, what is said when it is not there, and what Java starts with."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.pipeline.spark import session
from mqcd.pipeline.spark.gateway import reason
from mqcd.pipeline.spark.requirements import PipelineUnavailable, check_packages, find_java
from mqcd.pipeline.spark.session import DEFAULTS, _java

GOOD = {"jinja2": "3.1.6", "pyspark": "4.3.0", "pyarrow": "26.0.1", "pandas": "2.3.3"}


def java(home: Path, version: str) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return home


def test_java_home_wins(tmp_path: Path) -> None:
    home, other = java(tmp_path / "a", "17.0.15"), java(tmp_path / "b", "21")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == home
    assert find_java({"PATH": f"{other / 'bin'}:/bin"}) == other


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "what"])
def test_an_old_java_is_refused_and_the_package_named(tmp_path: Path, version: str) -> None:
    home = java(tmp_path, version)
    with pytest.raises(PipelineUnavailable, match="default-jre-headless"):
        find_java({"JAVA_HOME": str(home), "PATH": "/bin"})


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(PipelineUnavailable, match="apt-get install default-jre-headless"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(PipelineUnavailable, match="holds no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_no_classes_are_kept_where_a_setting_says_how_java_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    known = [
        _java(None, {f"spark.{name}": "chosen"}) is not None
        for name in ("driver.memory", "master", "driver.extraClassPath", "driver.extraJavaOptions")
    ]
    assert known == [True, False, False, False]
    assert _java("local[2]", {}) is None


def test_kept_classes_are_those_of_one_memory_and_of_one_set_of_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    first = _java(None, {})
    assert first == _java(None, {"spark.driver.memory": DEFAULTS["spark.driver.memory"]})
    assert first != _java(None, {"spark.driver.memory": "40g"})
    monkeypatch.setattr(session, "_JAVA", "-XX:+UseSerialGC")
    assert first != _java(None, {})


def test_versions_that_go_together() -> None:
    check_packages(GOOD)
    with pytest.raises(PipelineUnavailable, match="needs the extra"):
        check_packages({name: GOOD[name] for name in ("pyspark", "pandas")})
    for wrong in ({"pandas": "3.0.1"}, {"pyspark": "3.5.1"}, {"pyarrow": "14.0"}):
        with pytest.raises(PipelineUnavailable, match="does not work with"):
            check_packages(GOOD | wrong)


WORKER = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "intake.py", line 83, in _take
    parts.close()
    ^^^^^^^^^^^^^
OSError: [Errno 28] No space left on device
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner
"""
JAVA = """An error occurred while calling o123.parquet.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.sql.Dataset
Caused by: org.apache.spark.SparkException: Task failed
\tat org.apache.spark.Executor
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream
"""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (WORKER, "OSError: [Errno 28] No space left on device"),
        (JAVA, "java.io.IOException: No space left on device"),
        ("\n[UNRESOLVED_COLUMN] no such column `x`\nat line 1", "[UNRESOLVED_COLUMN] no such column `x`"),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("", "no reason given"),
    ],
)
def test_why_spark_gave_up_is_one_line(said: str, why: str) -> None:
    assert reason(said) == why
