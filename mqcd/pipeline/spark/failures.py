"""What Spark throws, as one line that says why."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from mqcd.core.errors import MqcdError


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
