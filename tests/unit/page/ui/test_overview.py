"""The overview in its states, and what it says needs attention."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from mqcd.core.samples import Sample, Series, view
from mqcd.page.recorder import KEPT_MS, STEP_MS, Recorder
from mqcd.page.ui.attention import State, Weight, findings, growth
from tests.fakes.clock import FakeClock
from tests.fakes.control import FakeControl, refusal, said
from tests.unit.page.support import Site
from tests.unit.page.ui.answers import METRICS, destination, of_server, text
from tests.unit.page.ui.seen import Seen


def sample(second: float, against: str = "", **values: Mapping[Any, float]) -> Sample:
    metrics: dict[str, Series] = {f"mqcd_{name}": series for name, series in values.items()}
    return Sample(
        taken=second,
        at=int(second * 1000),
        metrics={"mqcd_build_info": {("9",): 1}, **metrics},
        against=against,
    )


def found(*samples: Sample, **known: Any) -> list[tuple[Weight, str]]:
    state = State(view=view(samples), samples=samples, **known)
    return [(each.weight, each.text) for each in findings(state)]


async def test_a_quiet_server_needs_nothing(open_site: Site) -> None:
    open_site.control.answers = {
        "/readyz": text("ok\n"),
        "/metrics": text(METRICS),
        "/v1/destinations": said([]),
    }
    async with open_site.client() as client:
        answer = await client.get("/")
    assert answer.status_code == 200
    assert "Nothing." in Seen(answer.text).words
    assert "No mail waits for any destination" in Seen(answer.text).words


async def test_a_server_that_is_down_is_no_empty_queue(open_site: Site) -> None:
    open_site.control.down = "no server runs at var/control.sock"
    async with open_site.client() as client:
        page, part = await client.get("/"), await client.get("/overview", headers={"HX-Request": "true"})
    assert (page.status_code, part.status_code) == (503, 200)
    for answer in (page, part):
        assert "no server runs at var/control.sock" in answer.text
        assert "Queued" not in answer.text


async def test_a_queue_that_opens_has_no_figures_yet(open_site: Site) -> None:
    opening = refusal(503, "the queue is not open yet")
    open_site.control.answers = dict.fromkeys(("/readyz", "/metrics", "/v1/destinations"), opening)
    async with open_site.client() as client:
        answer = await client.get("/")
    assert "the queue is not open yet" in answer.text
    assert "Queued" not in answer.text


async def test_a_paused_part_is_a_finding(open_site: Site) -> None:
    open_site.control.answers = of_server("deliver")
    async with open_site.client() as client:
        answer = await client.get("/overview")
    assert "Paused by deliver" in answer.text


async def test_refreshing_can_be_stopped(open_site: Site) -> None:
    open_site.control.answers = of_server("x")
    async with open_site.client() as client:
        going, stopped = await client.get("/"), await client.get("/?refresh=off")
    assert any(each.get("hx-trigger") == "every 5s" for each in Seen(going.text).all("div"))
    assert not any("every" in each.get("hx-trigger", "") for each in Seen(stopped.text).all("div"))


async def test_ages_are_counted_once_a_minute(open_site: Site) -> None:
    rows = [{"area": "deferred", "recipients": 9, "bytes": 9, "oldest": None}]
    open_site.control.answers["/v1/areas"] = said([*rows, {**rows[0], "area": "removed"}])
    open_site.control.answers["/v1/count"] = said({"recipients": 4, "bytes": 9, "oldest": None})
    async with open_site.client() as client:
        seen = [(await client.get("/overview/ages")).text for _ in range(2)]
        open_site.clock.advance(61_000)
        await client.get("/overview/ages")
    assert seen[0] == seen[1]
    assert re.findall(r'"num">([0-9,]+)', seen[0]) == ["5", "0", "0", "0", "4"]
    assert [each.path for each in open_site.control.asked].count("/v1/count") == 8


async def test_a_long_queue_is_counted_when_asked(open_site: Site) -> None:
    rows = [{"area": "deferred", "recipients": 1_000_000, "bytes": 9, "oldest": None}]
    open_site.control.answers["/v1/areas"] = said(rows)
    open_site.control.answers["/v1/count"] = said({"recipients": 400_000, "bytes": 9, "oldest": None})
    async with open_site.client() as client:
        first = Seen((await client.get("/overview/ages")).text)
        assert [each.path for each in open_site.control.asked].count("/v1/count") == 0
        then = Seen((await client.get(first.all("button")[0]["hx-get"])).text)
    assert "1,000,000 recipients" in first.words
    assert "600,000" in then.words


def test_the_worst_comes_first() -> None:
    listed = found(
        sample(0, outcome_unknown_total={(): 2}), sample(60, "no room", outcome_unknown_total={(): 2}),
        destinations=[destination("mx.test")],
    )  # fmt: skip
    assert [weight for weight, _ in listed] == [Weight.ALARM, Weight.WARNING, Weight.NOTE]
    assert "no room" in listed[0][1]
    assert "mx.test" in listed[1][1]


def test_a_pause_is_reported_once() -> None:
    parts = [{"part": "deliver", "paused": True, "by": "token:a", "reason": "disk"}]
    listed = found(sample(0, "deliver is paused: by token:a\nno room"), parts=parts)
    assert [words for _, words in listed] == ["Not ready: no room", "Paused by token:a: deliver: disk"]


def test_a_rule_that_suspends_is_only_noted() -> None:
    [(weight, words)] = found(sample(0), destinations=[destination("mx.test", rule="suspend-1")])
    assert (weight, words) == (Weight.NOTE, "By rules, 1 destination is suspended")


def test_a_disk_that_fills_is_foretold() -> None:
    free = [sample(at, disk_free_bytes={("queue",): 1e9 - at * 1e6}) for at in (0.0, 100, 200, 300)]
    [(weight, words)] = found(*free)
    assert weight is Weight.ALARM
    assert "queue is full in 11m" in words
    assert found(*[sample(at, disk_free_bytes={("queue",): 1e9}) for at in (0.0, 300)]) == []


def test_attempts_that_mostly_fail_are_reported_with_their_class() -> None:
    replies = {("policy", "4xx", "deferred"): 90.0, ("success", "2xx", "delivered"): 10.0}
    [(weight, words)] = found(sample(0, replies_total={}), sample(60, replies_total=replies))
    assert (weight, words[:3]) == (Weight.WARNING, "90%")
    assert "policy" in words
    few = {labels: count / 10 for labels, count in replies.items()}
    assert found(sample(0, replies_total={}), sample(60, replies_total=few)) == []


def test_a_flood_is_reported() -> None:
    grown = [sample(at, queue_recipients={("incoming",): at * 100}) for at in (0.0, 60, 120)]
    [(weight, words)] = found(*grown)
    assert weight is Weight.WARNING
    assert "12,000 recipients more" in words


def test_mail_that_cannot_be_stored_is_an_alarm() -> None:
    refused = {("store",): 3.0, ("relay",): 900.0}
    [(weight, words)] = found(sample(0, refused_total={}), sample(60, refused_total=refused))
    assert weight is Weight.ALARM
    assert "3 messages" in words


def counted(*counts: float, starts: Sequence[float] = ()) -> list[Sample]:
    """Samples of a counter, ten seconds apart; `starts`: when the oldest process was started."""
    return [
        Sample(
            taken=10.0 * at,
            at=10_000 * at,
            metrics={"mqcd_refused_total": {("store",): count}, "process_start_time_seconds": {(): start}},
        )
        for at, (count, start) in enumerate(zip(counts, starts or (-5.0,) * len(counts), strict=True), 100)
    ]


def test_a_restart_of_the_server_hides_no_failures() -> None:
    samples = counted(100, 130, 4, 10, starts=(5, 5, 1015, 1015))
    opening = Sample(taken=1040, at=1_040_000, against="starting")
    assert growth([*samples, opening], "mqcd_refused_total") == {("store",): 30 + 4 + 6}


def test_a_series_that_a_restart_ends_begins_again_at_zero() -> None:
    samples = counted(100, 130, 0, 7, starts=(5, 5, 1015, 1015))
    assert growth(samples, "mqcd_refused_total") == {("store",): 30 + 7}


@pytest.mark.parametrize(
    ("counts", "starts", "grown"),
    [
        # The front process is new: it knows no more what an ended process of a shard had counted.
        ((51_000, 50_000, 50_000), (5, 5, 5), {}),
        # It misses the oldest shard once.
        ((51_000, 20_000, 51_003), (5, 600, 5), {("store",): 3}),
        # All shards are new, and it is not: the sums go on.
        ((51_000, 51_000, 51_002), (5, 1005, 1005), {("store",): 2}),
    ],
)
def test_counters_of_shards_that_shrink_are_no_failures(
    counts: Sequence[float], starts: Sequence[float], grown: Mapping[Any, float]
) -> None:
    assert growth(counted(*counts, starts=starts), "mqcd_refused_total") == grown


async def test_figures_of_half_an_hour_are_kept() -> None:
    control, clock = FakeControl(answers={"/readyz": text("ok"), "/metrics": text(METRICS)}), FakeClock()
    recorder = Recorder(control, clock)
    for _ in range(KEPT_MS // STEP_MS + 20):
        clock.advance(STEP_MS)
        await recorder.fresh()
    samples = recorder.samples()
    assert (samples[-1].taken - samples[0].taken) * 1000 == KEPT_MS
    asked = len(control.asked)
    assert await recorder.fresh() is samples[-1]
    assert len(control.asked) == asked
