"""What Java says passes through, but for what nobody can use."""

from __future__ import annotations

import os
import threading

from mqcd.pipeline.spark.gateway import pass_on


def passed(text: bytes) -> bytes:
    said, says = os.pipe()
    seen, sees = os.pipe()
    passing = threading.Thread(target=pass_on, args=(said, sees))
    passing.start()
    os.write(says, text)
    os.close(says)
    passing.join()
    os.close(sees)
    with os.fdopen(seen, "rb") as file:
        return file.read()


def test_java_s_own_warning_is_left_out_and_nothing_else() -> None:
    text = b"a\nWARNING: Using incubator modules: jdk.incubator.vector\nError: could not reserve\nno line end"
    assert passed(text) == b"a\nError: could not reserve\nno line end"


def test_who_listens_no_more_ends_nobody() -> None:
    seen, sees = os.pipe()
    os.close(seen)
    said, says = os.pipe()
    os.write(says, b"a\nb\n")
    os.close(says)
    pass_on(said, sees)
    os.close(sees)
