"""Ends the Java process that pyspark has started, by private attributes: pyspark has no others for it."""

from __future__ import annotations

import subprocess
from typing import Any

_PATIENCE_S = 120
"""Seconds for Java to end in, with what it keeps."""


def end() -> int:
    """Have the Java of a session that was stopped end now, not with this process; gives its exit code."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        code: int = gateway.proc.wait(_PATIENCE_S)
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
