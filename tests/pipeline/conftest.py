"""One Spark for all tests of a process: its start takes longer than most of them.

`tests/conftest.py` gives all files that use it to one process.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from mqcd.pipeline.spark.session import session
from mqcd.pipeline.store.store import Store
from tests.e2e.conftest import loop_thread, make_receiver, make_server
from tests.e2e.kit.smallfs import own_namespace

__all__ = ["loop_thread", "make_receiver", "make_server", "spark", "store"]

SPLIT = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "4"}
"""Little work in several tasks all the same: what must come together is then not together by chance."""
SETTINGS = {**SPLIT, "spark.driver.maxResultSize": "16m"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Java is to see what tests mount.
    own_namespace()
    with warnings.catch_warnings():
        # Spark leaves the pipe to its Java to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        running = session(master="local[2]", settings=SETTINGS)
        yield running
        running.stop()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "pipeline")


@pytest.fixture(scope="session", autouse=True)
def plain_handlers() -> Iterator[None]:
    """Handlers keep their format. Spark's loggers give each their own, and pytest adds the handlers of all
    later tests to loggers that do not propagate, as these after an error in a query."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PySparkLogger, "addHandler", logging.Logger.addHandler)
        yield
