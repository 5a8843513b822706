"""The audit logs: which line for which end, and what happens when they cannot be written."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.config.settings import AuditSettings, Rotation
from mqcd.core.model import Area, Delivered, Recipient
from mqcd.core.ports import Observer
from mqcd.core.queueing.transition import after
from mqcd.core.smtp.reply import Reply
from mqcd.ops.audit.audit import WAITING, Audit, directories
from tests.contract.mail import ATTEMPT, bounced, deferred, delivered, expired
from tests.fakes.clock import START_MS
from tests.unit.ops.log.test_observer import MAIL, everything

AT = START_MS + 1500
DAY = 86_400_000
LONG = 30.0

HEAD = (
    "at=2027-01-15T08:00:01.500Z event={event} spid=000000000000ABC2 qid=1 sender=s@example.com "
    'recipient=a@example.org size=70 origin=smtp client=192.0.2.9 user="" attempts={attempts} queued_ms=1500'
)


def failed(recipient: Recipient = MAIL, *, old: bool = False) -> Recipient:
    """The record that waits for its report."""
    record = after(recipient, expired() if old else bounced())
    assert record is not None
    assert record.area is Area.BOUNCES
    return record


class Logs:
    """Both logs in one directory, and what they hold once closed."""

    def __init__(self, directory: Path, rotation: Rotation = Rotation.NEVER) -> None:
        self.deliver = AuditSettings(audit=directory / "delivered.log", audit_rot=rotation)
        self.report = AuditSettings(audit=directory / "failed.log", audit_rot=rotation)
        self.directory = directory
        self.audit = Audit(self.deliver, self.report)

    def lines(self, name: str) -> list[str]:
        self.audit.close(LONG)
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_a_delivery_is_one_line(logs: Logs) -> None:
    logs.audit.delivered(AT, MAIL, delivered())
    assert logs.lines("delivered.log") == [
        HEAD.format(event="delivered", attempts=1)
        + ' destination=example.org zone="" remote_host=mx.example.org remote_addr="" tls=""'
        " code=250 status=2.0.0 reply=ok"
    ]
    assert logs.lines("failed.log") == []


@pytest.mark.parametrize("old", [False, True])
def test_a_failure_is_one_line_with_its_report(logs: Logs, old: bool) -> None:
    if old:
        logs.audit.expired(AT, MAIL, expired())
    else:
        logs.audit.bounced(AT, MAIL, bounced())
    logs.audit.reported(AT, failed(old=old), 0xABC4)
    said = (
        'code=450 status=4.4.1 reply="nobody there"' if old else 'code=550 status=5.1.1 reply="no such user"'
    )
    assert logs.lines("failed.log") == [
        HEAD.format(event="expired" if old else "bounced", attempts=1)
        + f' remote_host=mx.example.org phase=dot {said} report=000000000000ABC4 reason=""'
    ]
    assert logs.lines("delivered.log") == []


def test_a_bounce_by_a_temporary_reply_did_not_expire(logs: Logs) -> None:
    record = after(MAIL, replace(bounced(), reply=Reply(code=450, status="4.2.2", text="full")))
    assert record is not None
    logs.audit.reported(AT, record, 0xABC4)
    assert " event=bounced " in logs.lines("failed.log")[0]


def test_a_failure_that_nobody_is_reported_says_why(logs: Logs) -> None:
    logs.audit.discarded(AT, failed(), "notify")
    assert logs.lines("failed.log")[0].endswith(' report="" reason=notify')


def test_a_report_that_fails_ends_with_its_verdict(logs: Logs) -> None:
    report = replace(MAIL, envelope=replace(MAIL.envelope, sender=""))
    logs.audit.bounced(AT, report, bounced())
    logs.audit.expired(AT, report, expired())
    first, second = logs.lines("failed.log")
    assert ' event=bounced spid=000000000000ABC2 qid=1 sender="" recipient=' in first
    assert " event=expired " in second
    assert first.endswith('reply="no such user" report="" reason="null sender"')


def test_what_is_no_end_is_no_line(logs: Logs) -> None:
    observer: Observer = logs.audit
    observer.deferred(AT, MAIL, deferred(AT + 1))
    observer.bounced(AT, MAIL, bounced())
    observer.expired(AT, MAIL, expired())
    assert logs.lines("failed.log") == logs.lines("delivered.log") == []


def test_every_event_is_heard_without_a_log_too() -> None:
    audit = Audit(AuditSettings(), AuditSettings())
    everything(audit)
    audit.close(LONG)


HARM = [
    "a\nb",
    "a\r\nat=x",
    "\x1b[2J",
    'q" x=1',
    "\u2028",
    "\x85",
    "\udc80",
    "å日本",
    "",
    "a=b",
    "\\",
    "\x00",
]


@pytest.mark.parametrize("text", HARM)
def test_no_peer_text_breaks_a_line_or_forges_a_field(logs: Logs, text: str) -> None:
    mail = replace(MAIL, address=f"{text}@example.org", envelope=replace(MAIL.envelope, sender=text))
    verdict = Delivered(
        reply=Reply(code=250, status=text, text=text), attempt=replace(ATTEMPT, remote_host=text)
    )
    logs.audit.delivered(AT, mail, verdict)
    logs.audit.close(LONG)
    octets = (logs.directory / "delivered.log").read_bytes()
    line = octets.decode("utf-8")
    assert line.endswith("\n")
    assert len(line.splitlines()) == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", line)
    pair = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"=\\]+)')
    rest = pair.sub("", line)
    assert rest.strip() == ""
    assert [match[0] for match in pair.findall(line)][:6] == [
        "at", "event", "spid", "qid", "sender", "recipient",
    ]  # fmt: skip
    assert len(pair.findall(line)) == 20


def test_an_events_time_decides_its_audit_file(tmp_path: Path) -> None:
    logs = Logs(tmp_path, Rotation.DAILY)
    for at in (AT, AT + DAY, AT - 40 * DAY, AT + 2 * DAY, AT):
        logs.audit.delivered(at, MAIL, delivered())
    logs.audit.close(LONG)
    again = Logs(tmp_path, Rotation.DAILY)
    again.audit.delivered(AT + DAY, MAIL, delivered())
    again.audit.close(LONG)
    assert {each.name: len(each.read_text().splitlines()) for each in tmp_path.iterdir()} == {
        "delivered-20261206.log": 1,
        "delivered-20270115.log": 2,
        "delivered-20270116.log": 2,
        "delivered-20270117.log": 1,
    }


def test_a_log_that_is_full_goes_on_in_another_file(logs: Logs) -> None:
    logs.audit.reload(replace(logs.deliver, audit_maxfile=300), logs.report)
    for _ in range(3):
        logs.audit.delivered(AT, MAIL, delivered())
    assert [len(logs.lines(name)) for name in ("delivered.log", "delivered.1.log", "delivered.2.log")] == [
        1,
        1,
        1,
    ]


def test_other_settings_count_from_the_next_line_on(logs: Logs) -> None:
    logs.audit.delivered(AT, MAIL, delivered())
    logs.audit.reload(
        replace(logs.deliver, audit=logs.directory / "other.log"), replace(logs.report, audit=None)
    )
    logs.audit.delivered(AT, MAIL, delivered())
    logs.audit.discarded(AT, failed(), "notify")
    logs.audit.reload(logs.deliver, logs.report)
    logs.audit.discarded(AT, failed(), "notify")
    assert [len(logs.lines(name)) for name in ("delivered.log", "other.log", "failed.log")] == [1, 1, 1]


class Blocked:
    """A directory that is none until `free`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("")

    def free(self) -> None:
        self._path.unlink()


class Alarm(logging.Handler):
    """Rings at the first error that is logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.rung = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.rung.set()


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    handler = Alarm()
    logging.getLogger("mqcd.ops.audit.audit").addHandler(handler)
    yield handler
    logging.getLogger("mqcd.ops.audit.audit").removeHandler(handler)


def told(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_a_refusing_disk_is_logged_once_and_loses_the_overflow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, alarm: Alarm
) -> None:
    blocked = Blocked(tmp_path / "var")
    logs = Logs(tmp_path / "var")
    for _ in range(WAITING // 2):
        logs.audit.delivered(AT, MAIL, delivered())
    assert alarm.rung.wait(LONG)
    for _ in range(WAITING // 2 + 10):
        logs.audit.delivered(AT, MAIL, delivered())
    blocked.free()
    assert len(logs.lines("delivered.log")) == WAITING
    [error] = told(caplog, logging.ERROR)
    assert error.endswith(": Not a directory")
    assert "/var/delivered.log" in error
    [warning] = told(caplog, logging.WARNING)
    assert "10 lines " in warning
    assert logs.audit.lost == 10
    logs.audit.reload(AuditSettings(), AuditSettings())
    assert logs.audit.lost == 10


def test_one_log_that_cannot_be_written_does_not_keep_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Blocked(tmp_path / "no")
    logs = Logs(tmp_path)
    audit = Audit(replace(logs.deliver, audit=tmp_path / "no" / "delivered.log"), logs.report)
    audit.delivered(AT, MAIL, delivered())
    audit.discarded(AT, failed(), "notify")
    audit.close(LONG)
    assert len((tmp_path / "failed.log").read_text().splitlines()) == 1
    assert told(caplog, logging.ERROR)[-1].partition(":")[0].endswith("delivered.log")
    assert audit.lost == 1


def test_the_directories_that_a_start_makes(tmp_path: Path) -> None:
    deliver = AuditSettings(audit=tmp_path / "audit" / "Y%Y%" / "d.log")
    assert directories(deliver, AuditSettings()) == [tmp_path / "audit"]
