"""The advice files between analytics and server: propose, apply, cancel; and the command that does it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqcd.advice.desk import ACTIVE, CANCELLED, PROPOSED, Applied, Desk, NoSuchPiece
from mqcd.cli.main import cli
from mqcd.config.advice import (
    Advice,
    Shaping,
    Suppression,
    comparable,
    read_advice,
    shaping_id,
    suppression_id,
)
from mqcd.config.problems import BadConfiguration
from mqcd.core.errors import StoreBusy
from mqcd.disk.durable import Buffer, Disk
from mqcd.disk.locks import holding

NOW = 1_800_000_000_000
HOUR = 3_600_000
MINE = "mine@x.org"


def suppression(recipient: str, since: int = NOW - HOUR, until: int = NOW + HOUR) -> Suppression:
    return Suppression(
        id=suppression_id(recipient), recipient=recipient, reason="gone", since=since, until=until
    )


def advice(*recipients: str, match: str = "") -> Advice:
    shapings: tuple[Shaping, ...] = ()
    if match:
        shaping = Shaping(
            id=shaping_id(match), match=match, maxserverconnections=2, reason="421", since=1, until=NOW + HOUR
        )
        shapings = (shaping,)
    return Advice(
        suppressions={comparable(each): suppression(each) for each in recipients}, shapings=shapings
    )


def names(desk: Desk, kind: str) -> set[str]:
    found = desk.read(kind)
    return {*found.suppressions, *(each.match for each in found.shapings)}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "advice", NOW)


def test_what_is_proposed_has_no_effect_until_it_is_applied(desk: Desk) -> None:
    desk.propose(advice("a@x.org", match="mx.net"))
    assert names(desk, ACTIVE) == set()
    assert desk.apply() == Applied(added=2, kept=0, dropped=0)
    assert names(desk, ACTIVE) == {"a@x.org", "mx.net"}


def test_a_new_proposal_replaces_what_was_in_effect(desk: Desk) -> None:
    desk.propose(advice("a@x.org", "b@x.org"))
    desk.apply()
    desk.propose(advice("b@x.org", "c@x.org"))
    assert desk.apply() == Applied(added=1, kept=1, dropped=1)
    assert names(desk, ACTIVE) == {"b@x.org", "c@x.org"}


def test_what_came_in_effect_after_the_proposal_stays(tmp_path: Path, desk: Desk) -> None:
    desk.propose(advice("a@x.org"))
    later = Desk(tmp_path / "advice", NOW + 2)
    by_hand = Advice(made=NOW + 1, suppressions={MINE: suppression(MINE, since=NOW + 1)})
    later._write(ACTIVE, by_hand)
    assert later.apply() == Applied(added=1, kept=1, dropped=0)
    assert names(later, ACTIVE) == {"a@x.org", MINE}


def test_cancelled_advice_stays_cancelled_until_its_end(tmp_path: Path, desk: Desk) -> None:
    desk.propose(advice("a@x.org", "b@x.org"))
    desk.apply()
    assert desk.cancel(suppression_id("A@X.org")).id == suppression_id("a@x.org")
    assert names(desk, ACTIVE) == names(desk, PROPOSED) == {"b@x.org"}
    assert names(desk, CANCELLED) == {"a@x.org"}
    assert names(desk, PROPOSED) == {"b@x.org"}
    desk.propose(advice("a@x.org", "b@x.org"))
    desk.apply()
    assert names(desk, ACTIVE) == {"b@x.org"}
    later = Desk(tmp_path / "advice", NOW + HOUR)
    again = replace(suppression("a@x.org"), until=NOW + 9 * HOUR)
    later.propose(Advice(suppressions={"a@x.org": again}))
    later.apply()
    assert names(later, ACTIVE) == {"a@x.org"}


def test_a_shaping_is_cancelled_alike(desk: Desk) -> None:
    desk.propose(advice(match="mx.net"))
    desk.cancel(shaping_id("MX.net"))
    assert names(desk, PROPOSED) == set()
    assert names(desk, CANCELLED) == {"mx.net"}


def test_a_line_that_a_person_took_out_is_not_applied(desk: Desk) -> None:
    desk.propose(advice("a@x.org", "b@x.org"))
    path = desk.path(PROPOSED)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "a@x.org" not in line))
    desk.apply()
    assert names(desk, ACTIVE) == {"b@x.org"}


def test_a_proposal_that_does_not_read_changes_nothing(desk: Desk) -> None:
    desk.propose(advice("a@x.org"))
    desk.apply()
    before = desk.path(ACTIVE).read_bytes()
    desk.path(PROPOSED).write_text("<advice")
    with pytest.raises(BadConfiguration):
        desk.apply()
    assert desk.path(ACTIVE).read_bytes() == before


def test_nothing_proposed_and_no_such_piece(desk: Desk) -> None:
    with pytest.raises(NoSuchPiece, match="nothing is proposed"):
        desk.apply()
    desk.propose(advice("a@x.org"))
    for decide in (desk.cancel, desk.accept):
        with pytest.raises(NoSuchPiece, match="s-000000000000"):
            decide("s-000000000000")


class Meanwhile(Disk):
    """Has another take a piece back between what a decision reads and what it writes."""

    def __init__(self, other: Desk) -> None:
        self.other = other

    def write_temp(self, path: Path, chunks: Iterable[Buffer], *, sync: bool = True) -> int:
        with pytest.raises(StoreBusy):
            self.other.cancel(suppression_id("a@x.org"))
        return super().write_temp(path, chunks, sync=sync)


@pytest.mark.parametrize(
    "decide",
    [
        lambda desk: desk.propose(advice("a@x.org")),
        lambda desk: desk.accept(suppression_id("b@x.org")),
        lambda desk: desk.cancel(suppression_id("b@x.org")),
        lambda desk: desk.apply(),
    ],
)
def test_two_decisions_follow_one_another(tmp_path: Path, desk: Desk, decide: Callable[[Desk], None]) -> None:
    desk.propose(advice("a@x.org", "b@x.org"))
    desk.accept(suppression_id("a@x.org"))
    other = Desk(tmp_path / "advice", NOW, patience=0)
    decide(Desk(tmp_path / "advice", NOW, Meanwhile(other)))
    other.cancel(suppression_id("a@x.org"))
    assert "a@x.org" not in names(desk, ACTIVE)


def test_a_decision_waits_for_another(tmp_path: Path, desk: Desk) -> None:
    desk.propose(advice("a@x.org"))
    with ThreadPoolExecutor() as threads:
        with holding(Disk(), tmp_path / "advice") as ours:
            waits = threads.submit(desk.accept, suppression_id("a@x.org"))
            with pytest.raises(StoreBusy):
                Desk(tmp_path / "advice", NOW, patience=0).apply()
        assert (ours, waits.result().id) == (True, suppression_id("a@x.org"))


def test_the_command_lists_applies_and_cancels(tmp_path: Path) -> None:
    conf = tmp_path / "conf" / "mqcd.xml"
    conf.parent.mkdir()
    conf.write_text("<mailserver/>")
    far = replace(suppression("a@x.org"), until=4_000_000_000_000)
    Desk(tmp_path / "var" / "advice", NOW).propose(Advice(suppressions={"a@x.org": far}))

    def advise(*words: str) -> list[dict[str, object]]:
        done = CliRunner().invoke(cli, ["-c", str(conf), "pipeline", "advise", "--json", *words])
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert advise("--apply") == [{"added": 1, "kept": 0, "dropped": 0}]
    listed = advise("--list")
    assert [each["state"] for each in listed] == ["active", "proposed"]
    assert listed[0]["recipient"] == "a@x.org"
    assert listed[0]["until"] == "2096-10-02T07:06:40.000Z"
    advise("--cancel", str(listed[0]["id"]))
    assert [each["state"] for each in advise("--list")] == ["cancelled"]
    assert read_advice(tmp_path / "var" / "advice" / "active.xml").suppressions == {}
