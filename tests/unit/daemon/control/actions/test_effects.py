"""Rules that follow from replies: each once while it stands, many in one change, and a bound on them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mqcd.config.settings import ReplyAction, ReplyRuleSettings
from mqcd.core.selecting.rules import RuleAction
from mqcd.core.smtp.reply import Reply
from mqcd.daemon.control.actions import effects as room
from mqcd.daemon.control.actions.effects import Replies
from mqcd.daemon.rules.book import RuleBook, Rules
from mqcd.deliver.replying import Effect
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FaultyDisk

HOUR = 3_600_000
BUSY = Reply(code=421, status="4.7.0", text="too many connections")
SUSPEND = ReplyRuleSettings(action=ReplyAction.SUSPEND, span=HOUR)
SLOW = ReplyRuleSettings(action=ReplyAction.SLOW, span=HOUR)


class Rig:
    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.disk = FaultyDisk()
        self.events: list[str] = []
        self.book = RuleBook(path / "rules.json", self.clock, lambda: True, self._apply, self.disk)
        self.replies = Replies(self.book, self.clock, lambda event, **fields: self.events.append(event))

    async def _apply(self, before: Rules, after: Rules) -> None:
        """Delivery has no part in this."""

    def heard(self, site: str, rule: ReplyRuleSettings = SUSPEND) -> None:
        self.replies(Effect(rule=rule, site=site, reply=BUSY))

    async def added(self, count: int) -> None:
        while len(self.events) < count:
            await asyncio.sleep(0.001)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_many_replies_make_one_rule_a_destination(rig: Rig) -> None:
    for number in range(40):
        rig.heard(f"mx{number % 20}.example")
    await rig.added(20)
    rig.heard("mx0.example")
    assert len(rig.book.rules) == 20
    assert rig.disk.count("rename", "*/rules.json") == 1
    [rule] = [each for each in rig.book.rules.values() if str(each.where) == "site = mx0.example"]
    assert (rule.by, rule.until, rule.reason) == ("server", rig.clock.now() + HOUR, f"reply rule for {BUSY}")


async def test_a_reply_after_the_end_makes_a_new_rule(rig: Rig) -> None:
    rig.heard("mx.example")
    await rig.added(1)
    rig.clock.advance(HOUR)
    rig.heard("mx.example")
    await rig.added(2)
    [rule] = rig.book.rules.values()
    assert rule.until == rig.clock.now() + HOUR


async def test_slow_without_limits_is_one_connection(rig: Rig) -> None:
    rig.heard("mx.example", SLOW)
    await rig.added(1)
    [rule] = rig.book.rules.values()
    assert (rule.action, rule.connections, rule.rate) == (RuleAction.SLOW, 1, None)


async def test_replies_make_no_more_rules_than_may_stand(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(room, "MOST_RULES", 3)
    for number in range(9):
        rig.heard(f"mx{number}.example")
    await rig.added(3)
    assert (len(rig.book.rules), len(caplog.records)) == (3, 1)
