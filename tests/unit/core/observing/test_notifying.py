"""Which call of an observer a verdict is."""

from __future__ import annotations

from typing import cast

import pytest

from mqcd.core.model import Verdict
from mqcd.core.observing.notifying import notify_verdict
from tests.fakes.observer import RecordingObserver
from tests.unit.queue.support import recipient


def test_a_verdict_that_no_observer_hears_of_is_an_error() -> None:
    observer = RecordingObserver()
    with pytest.raises(AssertionError):
        notify_verdict(observer, 0, recipient(), cast("Verdict", "pondered"))
    assert observer.heard == []
