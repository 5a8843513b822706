"""Business events as lines, and one observer that feeds several."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from mqcd.config.settings import LogFormat, LogLevel, LogSettings
from mqcd.core.model import Deferred, Envelope, Recipient
from mqcd.core.ports import Observer, Refusal
from mqcd.core.smtp.reply import Reply
from mqcd.ops.fanout import Fanout
from mqcd.ops.log.log import Log
from mqcd.ops.log.observer import MOST, WINDOW_MS, LogObserver
from tests.contract.mail import ATTEMPT, bounced, deferred, delivered, expired
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.observer import RecordingObserver

MAIL = Recipient(
    envelope=Envelope(
        spid=0xABC2, sender="s@example.com", received=START_MS, listener="SMTP", client="192.0.2.9"
    ),
    size=70,
    qid=1,
    address="a@example.org",
)
REFUSAL = Refusal(
    reason="relay",
    reply=Reply(code=550, status="5.7.1", text="no"),
    client="192.0.2.9",
    recipient="x@y.example",
)
HOP = replace(ATTEMPT, remote_addr="192.0.2.1", connect_ms=12)
WHERE = {"destination": "example.org", "remote_host": "mx.example.org", "remote_addr": "192.0.2.1"}
WHO = {"spid": "000000000000ABC2", "qid": 1, "sender": "s@example.com", "recipient": "a@example.org"}
VERDICT = {
    "attempt": 1,
    "destination": "example.org",
    "phase": "dot",
    "remote_host": "mx.example.org",
    "connect_ms": 0,
    "attempt_ms": 0,
}


def everything(observer: Observer) -> None:
    """Each event once."""
    at = START_MS + 1500
    observer.accepted(at, [MAIL, replace(MAIL, qid=2)])
    observer.attempted(at, [MAIL], "example.org")
    observer.delivered(at, MAIL, delivered())
    observer.deferred(at, MAIL, deferred(START_MS + 60_000))
    observer.bounced(at, MAIL, bounced())
    observer.expired(at, MAIL, expired())
    observer.reported(at, MAIL, 0xABC4)
    observer.discarded(at, MAIL, "notify")
    observer.outcome_unknown(at, MAIL)
    observer.refused(at, REFUSAL)
    observer.connected(at, HOP)
    observer.connect_failed(at, HOP, "refused")


def logged(level: LogLevel) -> list[dict[str, object]]:
    stream = io.StringIO()
    log = Log(FakeClock(), stream, LogSettings(format=LogFormat.JSON, level=level))
    everything(LogObserver(log))
    log.flush()
    lines: list[dict[str, object]] = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {line["at"] for line in lines} <= {"2027-01-15T08:00:01.500Z"}
    return lines


def of(event: str) -> dict[str, object]:
    [line] = [line for line in logged(LogLevel.DEBUG) if line["event"] == event and line.get("qid") != 2]
    return {name: value for name, value in line.items() if name not in ("at", "event")}


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (
            "accepted",
            {**WHO, "size": 70, "origin": "smtp", "listener": "SMTP", "client": "192.0.2.9"},
        ),
        (
            "delivered",
            {**WHO, **VERDICT, "code": 250, "status": "2.0.0", "reply": "ok", "queued_ms": 1500},
        ),
        (
            "deferred",
            {
                **WHO,
                **VERDICT,
                "code": 450,
                "status": "4.2.1",
                "reply": "busy",
                "queued_ms": 1500,
                "due": "2027-01-15T08:01:00.000Z",
            },
        ),
        (
            "bounced",
            {**WHO, **VERDICT, "code": 550, "status": "5.1.1", "reply": "no such user", "queued_ms": 1500},
        ),
        (
            "expired",
            {**WHO, **VERDICT, "code": 450, "status": "4.4.1", "reply": "nobody there", "queued_ms": 1500},
        ),
        ("reported", {**WHO, "report": "000000000000ABC4"}),
        ("discarded", {**WHO, "reason": "notify"}),
        (
            "refused",
            {
                "reason": "relay",
                "client": "192.0.2.9",
                "recipient": "x@y.example",
                "code": 550,
                "status": "5.7.1",
                "reply": "no",
            },
        ),
        ("connect-failed", {**WHERE, "reason": "refused"}),
    ],
)
def test_events_at_info(event: str, fields: dict[str, object]) -> None:
    assert of(event) == {"level": "info", **fields}


@pytest.mark.parametrize(
    ("event", "level", "fields"),
    [
        ("attempted", "debug", {**WHO, "attempt": 1, "destination": "example.org"}),
        ("connected", "debug", {**WHERE, "connect_ms": 12}),
        ("outcome-unknown", "warning", WHO),
    ],
)
def test_events_at_other_levels(event: str, level: str, fields: dict[str, object]) -> None:
    assert of(event) == {"level": level, **fields}


def test_a_possible_delivery_is_reported() -> None:
    stream = io.StringIO()
    log = Log(FakeClock(), stream, LogSettings())
    maybe = Deferred(
        reply=deferred(0).reply,
        attempt=replace(ATTEMPT, tls="TLSv1.3", remote_addr="192.0.2.1"),
        due=START_MS,
        possibly_delivered=True,
    )
    LogObserver(log).deferred(START_MS, MAIL, maybe)
    log.flush()
    assert " possibly_delivered=true" in stream.getvalue()
    assert " remote_addr=192.0.2.1 tls=TLSv1.3 " in stream.getvalue()


@pytest.mark.parametrize(
    ("level", "hidden"),
    [
        (LogLevel.DEBUG, set()),
        (LogLevel.INFO, {"attempted", "connected"}),
        (LogLevel.ERROR, {line["event"] for line in logged(LogLevel.DEBUG)}),
    ],
)
def test_levels_hide_events(level: LogLevel, hidden: set[object]) -> None:
    every = {line["event"] for line in logged(LogLevel.DEBUG)}
    assert {line["event"] for line in logged(level)} == every - hidden


def test_warnings_alone() -> None:
    assert [line["event"] for line in logged(LogLevel.WARNING)] == ["outcome-unknown"]


def test_a_fanout_passes_everything_on_to_everybody() -> None:
    alone, first, second = RecordingObserver(), RecordingObserver(), RecordingObserver()
    everything(alone)
    everything(Fanout(first, second))
    assert len(alone.heard) == 13
    assert first.heard == second.heard == alone.heard


def test_a_flood_of_refusals_is_summed_up() -> None:
    stream = io.StringIO()
    log = Log(FakeClock(), stream, LogSettings(format=LogFormat.JSON, level=LogLevel.INFO))
    observer = LogObserver(log)
    for _ in range(MOST + 5):
        observer.refused(START_MS, REFUSAL)
    observer.accepted(START_MS + WINDOW_MS, [MAIL])
    log.flush()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    refused = [line for line in lines if line["event"] == "refused"]
    assert len(refused) == MOST + 1
    assert refused[-1]["left_out"] == 5
    assert refused[-1]["client"] == REFUSAL.client


def test_the_command_that_is_none_is_logged() -> None:
    stream = io.StringIO()
    log = Log(FakeClock(), stream, LogSettings(format=LogFormat.JSON, level=LogLevel.INFO))
    LogObserver(log).refused(START_MS, replace(REFUSAL, command="GET"))
    log.flush()
    assert json.loads(stream.getvalue())["command"] == "GET"
