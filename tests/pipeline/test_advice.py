"""Who is dead by evidence and who is not, on lives made by hand: one job for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqcd.config.advice import Advice, comparable
from mqcd.daemon.derived import suppressions_of
from mqcd.eventlog.pseudonyms import Pseudonyms
from mqcd.pipeline.advice.decisions import DAY, Rules
from mqcd.pipeline.advice.making import piece_of
from mqcd.pipeline.advice.suppressing import AT_ONCE, FEW, LONG_AGO, refused
from mqcd.pipeline.tables.recipients import merge, of_events
from mqcd.pipeline.tables.sites import sites
from tests.pipeline.making import HOUR, T0, Log

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]

NOW = T0 + HOUR
THREE = (5.0, 3.0, 1.0)
"""Days ago; enough."""
KEY = b"sixteen octets!!"
HASHED = "hashed@hash.example"


class Lives(Log):
    """Each day ago one message, refused or taken."""

    def refused(self, name: str, ago: Iterable[float] = THREE, **told: Any) -> None:
        """By default as an unknown user, at RCPT. `name` is an address, with `domain` also a hash."""
        domain = str(told.pop("domain", name.rpartition("@")[2]))
        for days in ago:
            at = NOW - int(days * DAY)
            shared = self.accept(at, name) | {"domain": domain}
            self.events[-1]["domain"] = domain
            self.verdict(shared, "bounced", at + 100, **{"phase": "rcpt", "site": domain} | told)

    def taken(self, name: str, ago: float) -> None:
        self.deliver(NOW - int(ago * DAY), name)


REFUSALS: dict[str, dict[str, Any]] = {
    "blocked": {"code": 554, "status": "5.7.1", "reply": "Message blocked: poor reputation of 192.0.2.1"},
    "listed": {"reply": "recipient unknown: your host is blocked using bl.example"},
    "relay": {"status": "5.7.1", "reply": "Relay access denied"},
    "relay-vague": {"status": "", "reply": "relaying denied"},
    "spam": {"status": "5.0.0", "reply": "this looks like spam, user unknown"},
    "content": {"code": 554, "status": "5.6.0", "reply": "Message content rejected", "phase": "dot"},
    "size": {"code": 552, "status": "5.3.4", "reply": "Message too big", "phase": "mail"},
    "full": {"code": 552, "status": "5.2.2", "reply": "Mailbox is full"},
    "sender": {"status": "5.1.8", "reply": "Sender address does not exist"},
    "at-mail": {"phase": "mail"},
    "at-hello": {"phase": "ehlo"},
    "our-own": {"phase": "route"},
    "later": {"code": 450, "status": "4.1.1"},
}
"""What is no evidence against a mailbox."""


def lives() -> Lives:
    log = Lives()
    log.refused("gone@a.example")
    log.refused("VAGUE@Words.Example", status="", reply="550 No such user here", domain="words.example")
    log.refused("twice@b.example", (3, 1))
    log.refused("hours@c.example", (1.0, 1.1, 1.2))
    for name, told in REFUSALS.items():
        log.refused(f"{name}@{name}.example", **told)
    # A directory that was away answers like this for everybody, on whichever days.
    for number in range(4):
        for domain in ("ill.example", "well.example"):
            log.refused(f"user{number}@{domain}")
    for days in THREE:
        for number in range(5):
            log.taken(f"other{number}@well.example", days)
    # Mail was taken for them, since or meanwhile.
    log.refused("back@d.example")
    log.taken("BACK@d.example", 0.5)
    log.refused("once-more@e.example", (9, 7, 5, 0.5))
    log.taken("once-more@e.example", 2)
    log.refused("gone-again@f.example", (20, 18, 16, 5, 3, 1))
    log.taken("gone-again@f.example", 10)
    # Ended, renewed by one more, and too long ago to be renewed.
    log.refused("ended@g.example", (40, 35, 31))
    log.refused("renewed@h.example", (80, 70, 1))
    log.refused("forgotten@i.example", (120, 95, 1))
    hashed = Pseudonyms(KEY).address(HASHED)
    log.refused(hashed, domain="hash.example", reply=f"<{hashed}> user unknown")
    return log


def test_only_who_is_dead_by_evidence_is_suppressed(spark: SparkSession, tmp_path: Path) -> None:
    log = lives()
    log.seal(tmp_path)
    events = spark.read.format("mqcd-events").load(str(tmp_path))
    rules = Rules()
    looked = refused(merge(of_events(events)), sites(events), rules, NOW).persist()
    found = looked.where("short IS NULL").collect()
    short = {row["name"]: row["short"] for row in looked.where("short IS NOT NULL").collect()}
    assert short == {
        "twice@b.example": FEW, "once-more@e.example": FEW, "forgotten@i.example": FEW,
        "hours@c.example": AT_ONCE, "ended@g.example": LONG_AGO,
    }  # fmt: skip

    rows = {row["name"]: row for row in found}
    hashed = Pseudonyms(KEY).address(HASHED)
    assert set(rows) == {
        "gone@a.example", "vague@words.example", "gone-again@f.example", "renewed@h.example", hashed,
        *(f"user{number}@well.example" for number in range(4)),
    }  # fmt: skip
    assert {name: row["messages"] for name, row in rows.items()} == dict.fromkeys(rows, 3)
    # Of who went away twice, what was before the delivery says nothing.
    assert rows["gone-again@f.example"]["first"] == NOW - 5 * DAY + 100

    made = [piece_of(row.asDict(recursive=True), rules, NOW, NOW) for row in found]
    advice = Advice(suppressions={comparable(each.recipient): each for each in made if each is not None})
    gone = advice.suppressions["gone@a.example"]
    assert (gone.site, gone.saves) == ("a.example", 3)
    assert gone.until == NOW - DAY + 100 + rules.suppressed
    assert gone.status == "5.1.1"
    assert gone.reply == "550 5.1.1 User unknown"
    # Where the log has hashes, the door finds by them, and nobody else is refused.
    door = suppressions_of(advice, KEY)
    assert (door.find(HASHED) or gone).recipient == hashed
    assert door.find("other@hash.example") is None
