"""One Spark for all tests of a process: its start takes longer than most of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqcd.pipeline.session import session
from mqcd.pipeline.store import Store

SETTINGS = {
    "spark.driver.maxResultSize": "16m",
    "spark.sql.shuffle.partitions": "2",
    # Short jobs: what the better compiler gains it never earns.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with warnings.catch_warnings():
        # Spark leaves the pipe to its Java to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        running = session(master="local[2]", settings=SETTINGS)
        yield running
        running.stop()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "pipeline")
