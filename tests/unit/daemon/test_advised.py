"""Advice in effect: read when it changes, ended by the clock, and heeded at door and delivery."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import smtplib
from http import HTTPStatus
from pathlib import Path

import pytest

from mqcd.config.advice import Advice, Shaping, Suppression, comparable, document, suppression_id
from mqcd.config.settings import Rate
from mqcd.core.events import Verb
from mqcd.core.model import Bounced, Phase
from mqcd.daemon.advised import LOOK_MS, Adviser
from mqcd.daemon.derived import schedule_of, suppressions_of
from mqcd.eventlog.pseudonyms import Pseudonyms
from mqcd.net.clock import SystemClock
from tests.fakes.clock import START_MS, FakeClock
from tests.unit.daemon.support import arrived, running, settings_of, write_conf

DAY = 86_400_000
FAR = 4_000_000_000_000
GONE = "gone@example.com"


def suppression(recipient: str, until: int = FAR) -> Suppression:
    return Suppression(
        id=suppression_id(recipient), recipient=recipient, reason="no such mailbox", since=1, until=until
    )


def shaping(match: str = "example.com", **changes: object) -> Shaping:
    values = {"id": "d-1", "match": match, "reason": "asked us to", "since": 1, "until": FAR, **changes}
    return Shaping(**values)  # type: ignore[arg-type]


def put(directory: Path, *pieces: Suppression | Shaping) -> None:
    """As it is put by whoever applies advice: whole, under another name first."""
    advice = Advice(
        suppressions={comparable(each.recipient): each for each in pieces if isinstance(each, Suppression)},
        shapings=tuple(each for each in pieces if isinstance(each, Shaping)),
    )
    directory.mkdir(exist_ok=True)
    (directory / "new").write_bytes(b"".join(document(advice)))
    os.replace(directory / "new", directory / "active.xml")


class Taken:
    """What the server was told."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self.told: list[list[str]] = []
        self.adviser = Adviser(directory, self.clock, self._take)

    def _take(self, advice: Advice) -> None:
        self.told.append(sorted(advice.suppressions) + [each.match for each in advice.shapings])


# ---------------------------------------------------------------- keeping up with the file


async def test_no_file_is_no_advice_and_one_that_comes_is_read_once(tmp_path: Path) -> None:
    taken = Taken(tmp_path)
    await taken.adviser.look()
    assert taken.told == []
    put(tmp_path, suppression(GONE), shaping())
    await taken.adviser.look()
    await taken.adviser.look()
    assert taken.told == [[GONE, "example.com"]]
    assert taken.adviser.counts() == {"suppress": 1, "shape": 1}


async def test_a_file_that_goes_takes_its_advice_with_it(tmp_path: Path) -> None:
    taken = Taken(tmp_path)
    put(tmp_path, suppression(GONE))
    await taken.adviser.look()
    (tmp_path / "active.xml").unlink()
    await taken.adviser.look()
    assert taken.told == [[GONE], []]


async def test_a_piece_ends_by_the_clock(tmp_path: Path) -> None:
    taken = Taken(tmp_path)
    put(tmp_path, suppression("a@x.org", START_MS + DAY), suppression(GONE, START_MS + 2 * DAY))
    await taken.adviser.look()
    taken.clock.advance(DAY - 1)
    await taken.adviser.look()
    assert len(taken.told) == 1
    taken.clock.advance(1)
    await taken.adviser.look()
    taken.clock.advance(DAY)
    await taken.adviser.look()
    assert taken.told == [["a@x.org", GONE], [GONE], []]


async def test_what_has_ended_before_it_is_read_has_no_effect(tmp_path: Path) -> None:
    taken = Taken(tmp_path)
    put(tmp_path, suppression(GONE, START_MS))
    await taken.adviser.look()
    assert taken.told == [[]]


async def test_a_wrong_file_is_reported_once_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    taken = Taken(tmp_path)
    put(tmp_path, suppression(GONE))
    await taken.adviser.look()
    (tmp_path / "active.xml").write_text('<advice version="1">\n<suppress/></advice>')
    await taken.adviser.look()
    await taken.adviser.look()
    assert taken.told == [[GONE]]
    said = [each.getMessage() for each in caplog.records]
    assert said[0] == f"{tmp_path}/active.xml:2: suppress@id: is missing"
    assert "has errors" in said[-1]
    assert len(said) == len(set(said))


async def test_it_looks_every_two_seconds(tmp_path: Path) -> None:
    taken = Taken(tmp_path)
    task = asyncio.ensure_future(taken.adviser.run())
    put(tmp_path, suppression(GONE))
    while not taken.clock.sleepers:
        await asyncio.sleep(0)
    taken.clock.advance(LOOK_MS)
    while not taken.told:
        await asyncio.sleep(0)
    task.cancel()
    assert taken.told == [[GONE]]


# ---------------------------------------------------------------- what follows from it


def test_where_the_event_log_has_hashes_so_has_the_list() -> None:
    key = b"sixteen octets!!"
    hashed = Pseudonyms(key).address(GONE)
    listed = suppressions_of(Advice(suppressions={hashed: suppression(hashed)}), key)
    assert listed.find(GONE) is not None
    assert listed.find("other@example.com") is None


def test_a_due_time_by_advice_is_not_beyond_the_schedule(tmp_path: Path) -> None:
    settings = settings_of(write_conf(tmp_path))
    assert schedule_of(settings).longest < DAY
    assert schedule_of(settings, [shaping(retry_delays=(DAY,))]).longest >= DAY


async def test_the_door_refuses_who_is_suppressed_and_no_other(tmp_path: Path) -> None:
    put(tmp_path / "advice", suppression(GONE))
    advice = f"<advice><rootpath>{tmp_path}/advice</rootpath></advice>"
    async with running(tmp_path, ops_more=advice) as house:
        with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
            await house.send("GONE@Example.com")
        ((code, text),) = refused.value.recipients.values()
        assert code == 550
        assert text.startswith(b"5.1.1 On this server's suppression list until 2096-10-02 as s-")
        assert text.endswith(b": no such mailbox")
        await house.send("other@example.com")
        page = (await house.get("/metrics"))[1]
        assert '\nmqcd_refused_total{reason="suppressed"} 1.0\n' in page
        assert '\nmqcd_advice_pieces{kind="suppress"} 1.0\n' in page
        explained = json.loads((await house.get(f"/v1/explain?q={GONE}"))[1].splitlines()[0])
        assert explained["suppressed"].startswith("550 5.1.1 ")
        # Taken back while the server runs.
        put(tmp_path / "advice")
        while 'mqcd_advice_pieces{kind="suppress"} 0.0' not in (await house.get("/metrics"))[1]:
            pass
        await house.send(GONE)


async def test_mail_for_who_is_suppressed_bounces_without_an_attempt(tmp_path: Path) -> None:
    put(tmp_path / "advice", suppression(GONE))
    advice = f"<advice><rootpath>{tmp_path}/advice</rootpath></advice>"
    async with running(tmp_path, ops_more=advice, submit="<suppression>bounce</suppression>") as house:
        await house.send(GONE, "other@example.com")
        await arrived(house.sink, 2)
        sent = sorted(each.recipients for each in house.arrived)
        assert sent == [("me@here.example",), ("other@example.com",)]
        report = next(each for each in house.arrived if each.sender == "")
        assert b"Status: 5.1.1\r\n" in report.content
        assert b"suppression list" in report.content
        (bounced,) = [each for each in house.observer.heard if each.verb is Verb.BOUNCED]
        assert isinstance(bounced.verdict, Bounced)
        assert bounced.verdict.attempt.phase is Phase.ROUTE


async def test_a_destination_is_shaped(tmp_path: Path) -> None:
    put(tmp_path / "advice", shaping("example.com", maxserverconnections=3, rate=Rate(count=5, per=1000)))
    advice = f"<advice><rootpath>{tmp_path}/advice</rootpath></advice>"
    async with running(tmp_path, ops_more=advice) as house:
        explained = json.loads((await house.get("/v1/explain?q=a@example.com"))[1].splitlines()[0])
        limits = explained["limits"]
        assert (limits["maxserverconnections"], limits["rate"], limits["advice"]) == (3, "5/s", "d-1")
        other = json.loads((await house.get("/v1/explain?q=a@example.org"))[1].splitlines()[0])
        assert other["limits"]["advice"] is None


async def test_mail_can_be_put_off_by_as_much_as_advice_says(tmp_path: Path) -> None:
    put(tmp_path / "advice", shaping(retry_delays=(DAY,)))
    advice = f"<advice><rootpath>{tmp_path}/advice</rootpath></advice>"
    async with running(tmp_path, ops_more=advice) as house:
        house.server.reload(house.server.settings)
        fields = {"action": "reschedule", "until": SystemClock().now() + DAY // 2, "dry_run": True}
        answer = await asyncio.to_thread(house.control.post, "/v1/batch", fields, 60)
        assert answer[0] == HTTPStatus.OK, answer
