"""Which of Spark's jars Java looks into first: their names, read from the installed package."""

from __future__ import annotations

from mqcd.pipeline.spark.gateway import FIRST, in_front


def test_jars_that_java_looks_into_first_are_spark_s_own() -> None:
    # One that Spark calls otherwise some day would be missed by nobody.
    assert [next((name for name in FIRST if jar.name.startswith(name)), "") for jar in in_front()] == [*FIRST]
