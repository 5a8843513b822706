"""`queue ls|stat|cat` on a queue that the store has made, while it is open and after it was closed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mqcd.cli import main
from mqcd.cli.queue.records import COLUMNS
from mqcd.cli.queue.shape import Row, Shape, show_shape
from mqcd.cli.queue.tables import show_recipients
from mqcd.core.model import Envelope, Settlement, Submission
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.derived import options_of, schedule_of
from mqcd.disk.durable import Disk
from mqcd.net.clock import SystemClock
from mqcd.queue.manifest.state import Edit
from mqcd.queue.reading.snapshot import Snapshot
from mqcd.queue.store import ClusterStore
from tests.contract.mail import bounced, deferred
from tests.fakes.observer import RecordingObserver
from tests.unit.daemon.support import settings_of, write_conf

HOUR = 3_600_000
MINUTE = 60_000
CONTENT = b"Subject: \xe9t\xe9\r\n\r\n.dot\r\n"
FIELDS = (
    "spid", "qid", "area", "inflight", "sender", "recipient",
    "received", "due", "attempts", "size", "status", "reply",
)  # fmt: skip


@dataclass(kw_only=True)
class House:
    """An open store and the words that name its configuration."""

    store: ClusterStore
    words: list[str]
    now: int

    async def put(self, *recipients: str, sender: str = "me@here.example", age: int = 0) -> str:
        spid = self.store.reserve(len(recipients) > 1)
        envelope = Envelope(spid=spid, sender=sender, received=self.now - age)
        await self.store.enqueue(Submission(envelope=envelope, recipients=recipients, content=CONTENT))
        return format_spid(spid)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """Three messages: one waits, one was deferred, one of two recipients of the third bounced."""
    conf = write_conf(tmp_path, sink='9"/><relay senders="ordered.example" address="127.0.0.1:8')
    settings = settings_of(conf)
    clock = SystemClock()
    options = options_of(settings, schedule_of(settings))
    store = ClusterStore(options, clock, RecordingObserver())
    await store.open()
    await store.recovered()
    house = House(store=store, words=["-c", str(conf), "queue"], now=clock.now())
    await house.put("ann@slow.example", age=3 * HOUR)
    (ann,) = await store.claim(1, clock.now())
    await store.settle([Settlement(recipient=ann, verdict=deferred(house.now + 10 * MINUTE))])
    await house.put("bob@No.example", "cho@example.org")
    bob, cho = await store.claim(2, clock.now())
    await store.settle([Settlement(recipient=bob, verdict=bounced())])
    await store.park([cho], 0)
    await house.put("Dee@Example.org", sender="")
    yield house
    await store.close()


def rows(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def listed(capfd: pytest.CaptureFixture[str], house: House, *flags: str) -> list[str]:
    assert main([*house.words, "ls", "--json", *flags]) == 0
    return sorted(row["recipient"][:3] for row in rows(capfd))


async def test_a_line_of_json_has_every_field(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*house.words, "ls", "--json", "--area", "deferred"]) == 0
    (row,) = rows(capfd)
    assert tuple(row) == FIELDS
    assert row["sender"] == "me@here.example"
    assert row["recipient"] == "ann@slow.example"
    assert (row["attempts"], row["size"], row["inflight"]) == (1, len(CONTENT), False)
    assert (row["status"], row["reply"]) == ("4.2.1", "450 busy")
    assert row["due"].endswith("Z")
    assert row["due"] > row["received"]


async def test_what_there_is_not_is_null(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*house.words, "ls", "--json", "--recipient", "dee@example.org"]) == 0
    (row,) = rows(capfd)
    assert (row["due"], row["status"], row["reply"], row["sender"]) == (None, None, None, "")


async def test_flags_choose(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    assert listed(capfd, house) == ["Dee", "ann", "bob", "cho"]
    assert listed(capfd, house, "--area", "bounces") == ["bob"]
    assert listed(capfd, house, "--sender", "") == ["Dee"]
    assert listed(capfd, house, "--sender", "ME@here.example") == ["ann", "bob", "cho"]
    assert listed(capfd, house, "--domain", "EXAMPLE.org.") == ["Dee", "cho"]
    assert listed(capfd, house, "--older", "2h30m") == ["ann"]
    assert listed(capfd, house, "--older", "4h") == []
    assert len(listed(capfd, house, "--limit", "2")) == 2
    assert listed(capfd, house, "--limit", "0") == []
    assert main([*house.words, "ls", "--json", "--area", "bounces"]) == 0
    (row,) = rows(capfd)
    assert listed(capfd, house, "--spid", row["spid"].lower()) == ["bob", "cho"]


async def test_an_attempt_under_way_is_reported(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    claimed = await house.store.claim(5, house.now)
    await house.store.begin(claimed, "example.org")
    assert main([*house.words, "ls", "--json"]) == 0
    assert {row["recipient"][:3] for row in rows(capfd) if row["inflight"]} == {"Dee", "cho"}
    await house.store.park(claimed, 0)


async def test_a_pipe_gets_one_line_a_recipient(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    spid = await house.put(f"{'long' * 14}@{'name.' * 30}example", sender="x" * 60 + "@here.example")
    assert main([*house.words, "ls"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 5
    found = {line.split("\t")[7][:3]: line.split("\t") for line in lines}
    assert {len(columns) for columns in found.values()} == {len(COLUMNS)}
    assert found["lon"][0] == f"{spid}/1"
    _, area, tries, accepted, due, octets, sender, _, reply = found["ann"]
    assert (area, tries, octets, sender, reply) == (
        "deferred", "1", str(len(CONTENT)), "me@here.example", "450 4.2.1 busy",
    )  # fmt: skip
    assert due > accepted
    assert found["Dee"][6:] == ["<>", "Dee@Example.org", "-"]
    assert found["Dee"][4] == "-"


async def test_a_terminal_gets_a_table(
    house: House, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main([*house.words, "ls"]) == 0
    said = capfd.readouterr().out
    assert "4 recipients" in said
    assert "\t" not in said


async def test_flags_take_shell_patterns(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    assert listed(capfd, house, "--sender", "*@HERE.example") == ["ann", "bob", "cho"]
    assert listed(capfd, house, "--sender", "*") == ["Dee", "ann", "bob", "cho"]
    assert listed(capfd, house, "--recipient", "?[eh][eo]@*") == ["Dee", "cho"]
    assert listed(capfd, house, "--domain", "*.example") == ["ann", "bob"]
    assert listed(capfd, house, "--recipient", "[bd]ob@no.example") == []


async def test_a_condition_chooses(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    assert listed(capfd, house, "--where", "age > 2h or sender = ''") == ["Dee", "ann"]
    assert listed(capfd, house, "--where", "area = bounces and class = address") == ["bob"]
    assert listed(capfd, house, "--where", "not domain ~ *.example", "--sender", "me@*") == ["cho"]
    assert main([*house.words, "ls", "--where", "area = held"]) == 0
    assert capfd.readouterr().err == "nothing matches\n"


async def test_a_condition_names_sites(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    text = "site ~ 127.0.0.1:* and domain != no.example"
    assert await asyncio.to_thread(listed, capfd, house, "--where", text) == ["Dee", "ann", "cho"]
    assert await asyncio.to_thread(listed, capfd, house, "--where", "site = mx.example.org") == []


async def test_a_condition_that_is_wrong_is_bad_usage(
    house: House, capfd: pytest.CaptureFixture[str]
) -> None:
    for command in (["ls"], ["retry"], ["export", "--to", "there"]):
        assert main([*house.words, *command, "--where", "age > 2h and domain ="]) == 2
        assert "column 22: expected a value after =" in capfd.readouterr().err


async def test_an_export_takes_a_condition(
    house: House, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "--json", "--to", str(tmp_path / "out"), "--where", "recipient in (bob@no.example)"]
    assert main([*house.words, *words]) == 0
    [counts] = rows(capfd)
    assert (counts["messages"], counts["recipients"]) == (1, 1)


async def test_the_oldest_come_first(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    await house.put("old@example.org", age=9 * HOUR)
    await house.put("mid@example.org", age=HOUR)

    def sorted_by_age(*flags: str) -> list[str]:
        assert main([*house.words, "ls", "--json", "--sort", "age", *flags]) == 0
        return [row["recipient"][:3] for row in rows(capfd)]

    assert sorted_by_age() == ["old", "ann", "mid", "bob", "cho", "Dee"]
    assert sorted_by_age("--limit", "2") == ["old", "ann"]
    assert sorted_by_age("--where", "age < 2h", "--limit", "1") == ["mid"]


async def test_literals_need_no_escape(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    await house.put("eve@[192.0.2.1]")
    assert listed(capfd, house, "--recipient", "eve@[192.0.2.1]") == ["eve"]
    assert listed(capfd, house, "--domain", "[192.0.2.1]") == ["eve"]
    assert listed(capfd, house, "--recipient", "*@[[]192.*") == ["eve"]


@pytest.mark.parametrize("flags", [[], ["--json"]])
async def test_a_filter_that_matches_nothing_says_so(
    house: House, capfd: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    assert main([*house.words, "ls", "--domain", "nowhere.example", *flags]) == 0
    assert capfd.readouterr() == ("", "nothing matches\n")


async def test_an_empty_queue_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    conf = write_conf(tmp_path)
    settings = settings_of(conf)
    store = ClusterStore(options_of(settings, schedule_of(settings)), SystemClock(), RecordingObserver())
    await store.open()
    assert main(["-c", str(conf), "queue", "ls"]) == 0
    assert capfd.readouterr().err == "nothing waits\n"
    await store.close()


async def test_stat_counts_ages_by_domain(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*house.words, "stat", "--by", "domain", "--json"]) == 0
    told = {row["domain"]: row for row in rows(capfd)}
    assert [*told] == ["example.org", "no.example", "slow.example"]
    assert told["example.org"]["recipients"] == 2
    assert {age: n for age, n in told["slow.example"]["ages"].items() if n} == {"4h": 1}
    assert {age: n for age, n in told["example.org"]["ages"].items() if n} == {"5m": 2}
    assert told["slow.example"]["oldest"] < told["no.example"]["oldest"]


async def test_stat_counts_ages_by_destination(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    words = [*house.words, "stat", "--by", "destination", "--json"]
    await house.put("eve@slow.example", sender="shop@Ordered.example")
    assert await asyncio.to_thread(main, words) == 0
    row, ordered = rows(capfd)
    assert (row["destination"], row["recipients"], row["ages"]["4h"]) == ("127.0.0.1:9", 4, 1)
    assert (ordered["destination"], ordered["recipients"]) == ("127.0.0.1:8", 1)


async def test_stat_counts_by_reply_and_by_age(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*house.words, "stat", "--by", "reply", "--json"]) == 0
    told = {row["reply"]: (row["recipients"], row["example"]) for row in rows(capfd)}
    assert told["450 4.2.1"] == (1, "busy")
    assert told["(none yet)"] == (2, None)
    assert main([*house.words, "stat", "--by", "age", "--json"]) == 0
    ages = {row["age"]: row for row in rows(capfd)}
    assert ages["4h"]["areas"] == {"incoming": 0, "deferred": 1, "bounces": 0, "held": 0, "removed": 0}
    assert (ages["5m"]["recipients"], ages["older"]["recipients"], ages["older"]["oldest"]) == (3, 0, None)


@pytest.mark.parametrize("by", ["domain", "reply", "age"])
async def test_stat_tables_have_totals(house: House, capfd: pytest.CaptureFixture[str], by: str) -> None:
    assert main([*house.words, "stat", "--by", by]) == 0
    head, *_, foot = [line.split() for line in capfd.readouterr().out.splitlines() if line.strip()]
    assert head[:2] == [by, "total"]
    assert foot[:2] == ["all", "4"]


def items(count: int) -> dict[str, Row]:
    return {f"d{n}.example": Row([n, *[0] * 7], n, n) for n in range(1, count + 1)}


def test_rows_beyond_the_largest_are_one() -> None:
    columns = ("5m", "15m", "1h", "4h", "12h", "1d", "3d", "older")
    console = Console(width=200, file=StringIO(), force_terminal=True, color_system=None)
    show_shape(Shape("domain", columns, items(40)), 0, console)
    assert isinstance(console.file, StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines() if line.strip()]
    assert lines[2][:2] == ["d40.example", "40"]
    assert ["(others)", "55"] in [line[:2] for line in lines]
    assert str(sum(range(41))) in lines[-1]


async def test_the_table_has_what_people_ask_for(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(Path(house.words[1]))
    snapshot = Snapshot(Disk(), settings.queue.rootpath, settings.queue.spool.rootpath)
    show_recipients(snapshot.batches(Selection()), SystemClock().now())
    snapshot.close()
    said = capfd.readouterr().out
    for words in ("3h 00m ago", "in 9m", "ann@slow.example", "450 4.2.1 busy", "from <>", "4 recipients"):
        assert words in said
    assert max(map(len, said.splitlines())) <= 80


async def test_stat_counts_each_area(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*house.words, "stat", "--json"]) == 0
    told = {row["area"]: row for row in rows(capfd)}
    assert {area: row["recipients"] for area, row in told.items()} == {
        "incoming": 2, "deferred": 1, "bounces": 1, "held": 0, "removed": 0,
    }  # fmt: skip
    assert told["incoming"]["bytes"] == 2 * len(CONTENT)
    assert told["held"]["oldest"] is None
    assert told["deferred"]["oldest"] < told["incoming"]["oldest"]
    assert main([*house.words, "stat"]) == 0
    assert "3h 00m ago" in capfd.readouterr().out


async def test_cat_gives_the_octets(house: House, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    spid = await house.put("eve@example.org")
    assert main([*house.words, "cat", spid]) == 0
    assert capfdbinary.readouterr().out == CONTENT


async def test_cat_of_what_is_not_there_is_exit_code_1(
    house: House, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*house.words, "cat", "0000000000000000"]) == 1
    said = capfd.readouterr()
    assert said.out == ""
    assert "0000000000000000" in said.err


async def test_without_a_server_it_is_the_same(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    await house.store.close()
    assert listed(capfd, house) == ["Dee", "ann", "bob", "cho"]
    assert main([*house.words, "stat", "--json"]) == 0
    assert sum(row["recipients"] for row in rows(capfd)) == 4


def test_without_a_queue_it_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["-c", str(write_conf(tmp_path)), "queue", "stat"]) == 1
    assert "holds no queue" in capfd.readouterr().err


async def test_a_listing_that_lacks_something_is_exit_code_1(
    house: House, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    await house.store.close()
    clusters = list(tmp_path.rglob("*.mqc"))
    clusters[0].unlink()
    assert main([*house.words, "ls", "--json"]) == 1
    said = capfd.readouterr()
    lost = 4 - len(said.out.splitlines())
    told = f"{lost} records are damaged or missing, and left out; `mqcd fsck` lists them\n"
    assert lost in (1, 2)
    assert said.err == told
    assert main([*house.words, "export", "--to", str(tmp_path / "out")]) == 1
    said = capfd.readouterr()
    assert told in said.err
    assert f"0 failed, {lost} damaged" in said.out


async def test_a_listing_with_a_journal_gap_names_fsck(
    house: House, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    [segment] = [path for path in tmp_path.rglob("journal/*") if path.read_bytes()[:4096].strip(b"\0")]
    data = bytearray(segment.read_bytes())
    data[4096 + 60] ^= 1
    segment.write_bytes(data)
    assert main([*house.words, "ls"]) == 1
    said = capfd.readouterr().err
    assert said == "1 stretches of the journal are damaged and left out; `mqcd fsck` lists them\n"
    data[4096 + 60] ^= 1
    segment.write_bytes(data)


async def test_what_waits_can_be_had_without_a_manifest(
    house: House, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*house.words, "export", "--json", "--without-manifest", "--to"]
    assert main([*words, str(tmp_path / "none")]) == 1
    assert "MANIFEST can be read" in capfd.readouterr().err
    await house.store.close()
    [manifest] = tmp_path.rglob("MANIFEST")
    manifest.write_bytes(b"nonsense\n")
    assert main([*house.words, "export", "--to", str(tmp_path / "none")]) == 1
    assert "Run `mqcd fsck`" in capfd.readouterr().err
    main([*house.words[:-1], "fsck"])
    assert "mqcd queue export --without-manifest" in capfd.readouterr().out
    assert main([*words, str(tmp_path / "out")]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["recipients"] == 4
    assert "1 damaged lines" in said.err
    assert "finished recipients" in said.err


@pytest.mark.parametrize("left", [None, 0, 4096])
async def test_an_export_without_manifest_reports_a_lost_segment(
    house: House, tmp_path: Path, capfd: pytest.CaptureFixture[str], left: int | None
) -> None:
    [segment] = [path for path in tmp_path.rglob("journal/*") if path.read_bytes()[:4096].strip(b"\0")]
    data = segment.read_bytes()
    if left is None:
        segment.unlink()
    else:
        segment.write_bytes(bytes(left or len(data)) + data[left or len(data) :])
    words = [*house.words, "export", "--json", "--without-manifest", "--to"]
    assert main([*words, str(tmp_path / "out")]) == 1
    said = capfd.readouterr()
    assert json.loads(said.out)["damaged"] == 1
    assert "is missing" in said.err
    if left is not None:
        segment.write_bytes(data)


async def test_an_export_without_manifest_reports_a_lost_cluster(
    house: House, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    await house.store.close()
    [manifest] = tmp_path.rglob("MANIFEST")
    manifest.write_bytes(manifest.read_bytes() + b"nonsense\n" * 2)
    next(tmp_path.rglob("*.mqc")).unlink()
    assert main([*house.words, "export", "--json", "--without-manifest", "--to", str(tmp_path / "out")]) == 1
    said = capfd.readouterr()
    counts = json.loads(said.out)
    assert counts["damaged"] > 0
    assert counts["damaged"] + counts["recipients"] == 4
    assert "1 that it names" in said.err


async def test_an_export_goes_to_a_directory_that_is_named(
    house: House, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*house.words, "export", "--to", ""]) == 2
    assert "name a directory" in capfd.readouterr().err


async def test_stat_tells_of_a_clock_in_doubt(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*house.words, "stat"]) == 0
    assert "clock" not in capfd.readouterr().out
    future = house.now + 1000 * 24 * HOUR
    await house.store._live.shard.editing.commit(Edit(clock=future))
    assert main([*house.words, "stat"]) == 0
    assert "the clock is 999 days" in capfd.readouterr().out.splitlines()[-1]
    assert main([*house.words, "stat", "--json"]) == 0
    assert {tuple(row) for row in rows(capfd)} == {("area", "recipients", "bytes", "oldest")}
