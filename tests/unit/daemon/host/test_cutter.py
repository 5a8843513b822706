"""The end of a stop that takes too long."""

from __future__ import annotations

import threading

from mqcd.daemon.host.cutter import Cutter


def test_an_armed_cutter_exits_with_the_first_code() -> None:
    codes: list[int] = []
    ended = threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    cutter = Cutter(0, end)
    assert not ended.is_set()
    cutter.arm(1)
    cutter.arm(0)
    assert ended.wait(60)
    cutter.call_off()
    assert codes == [1]


def test_one_that_was_called_off_ends_nothing() -> None:
    codes: list[int] = []
    for armed in (False, True):
        cutter = Cutter(60, codes.append)
        if armed:
            cutter.arm(1)
        cutter.call_off()
    assert codes == []
