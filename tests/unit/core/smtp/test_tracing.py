"""Traces: whose sessions they see, what of them, and what never."""

from __future__ import annotations

import pytest

from mqcd.core.errors import DecodeError
from mqcd.core.smtp.tracing import KEPT, Row, Side, Tap, Traces, Who, parse_trace
from tests.fakes.clock import FakeClock

PEER = ("192.0.2.7", "mx.b.test", "b.test")


class Rig:
    """Traces of what is sought, and a session."""

    def __init__(self, *sought: str) -> None:
        self.traces = Traces(FakeClock().now)
        self.rows: list[Row] = []
        for each in sought:
            self.traces.add(parse_trace(each, self.rows.append))

    def tap(self) -> Tap:
        tap = self.traces.tap(Side.OUT, "out-1", "b.test", PEER)
        assert tap is not None
        return tap

    @property
    def texts(self) -> list[object]:
        return [row.get("text", row["event"]) for row in self.rows]


@pytest.mark.parametrize("sought", ["192.0.2.7", "192.0.2.0/24", "MX.b.test", "b.test"])
def test_a_peer_is_found_by_its_names(sought: str) -> None:
    rig = Rig(sought)
    rig.tap().said(Who.CLIENT, b"EHLO here\r\n")
    [row] = rig.rows
    assert {**row, "at": ""} == {
        "event": "said",
        "at": "",
        "side": "out",
        "session": "out-1",
        "name": "b.test",
        "peer": "192.0.2.7",
        "who": "client",
        "text": "EHLO here",
    }


@pytest.mark.parametrize("sought", ["192.0.2.8", "192.0.3.0/24", "2001:db8::/32"])
def test_a_session_with_another_network_is_not_tapped(sought: str) -> None:
    assert Rig(sought).traces.tap(Side.IN, "in-1", "smtp", ("192.0.2.7",)) is None


@pytest.mark.parametrize("sought", ["", "a b", "a\nb"])
def test_what_names_nothing_is_refused(sought: str) -> None:
    with pytest.raises(DecodeError, match="q:"):
        parse_trace(sought, lambda _: None)


@pytest.mark.parametrize("sought", ["to@c.test", "c.test", "FROM@a.test"])
def test_lines_before_an_address_are_kept_until_it_is_named(sought: str) -> None:
    rig = Rig(sought)
    tap = rig.tap()
    tap.said(Who.SERVER, b"220 ready\r\n")
    assert rig.rows == []
    tap.said(Who.CLIENT, b"MAIL FROM:<from@a.test>\r\nRCPT TO:<to@c.test> NOTIFY=NEVER\r\n")
    assert rig.texts == ["220 ready", "MAIL FROM:<from@a.test>", "RCPT TO:<to@c.test> NOTIFY=NEVER"]
    tap.said(Who.SERVER, b"250 yes\r\n")
    assert rig.texts[-1] == "250 yes"


def test_a_user_is_found_once_it_has_logged_in() -> None:
    rig = Rig("ann")
    tap = rig.tap()
    tap.names("bob")
    tap.note("opened")
    assert rig.rows == []
    tap.names("ann")
    assert rig.texts == ["opened"]


def test_a_message_before_is_not_seen() -> None:
    rig = Rig("to@c.test")
    tap = rig.tap()
    tap.said(Who.SERVER, b"220 ready\r\n")
    tap.said(Who.CLIENT, b"MAIL FROM:<other@x.test>\r\nRCPT TO:<other@y.test>\r\n")
    tap.said(Who.CLIENT, b"MAIL FROM:<>\r\nRCPT TO:<to@c.test>\r\n")
    assert rig.texts == ["220 ready", "MAIL FROM:<>", "RCPT TO:<to@c.test>"]


def test_few_lines_are_kept() -> None:
    rig = Rig("to@c.test")
    tap = rig.tap()
    tap.said(Who.SERVER, b"220 x\r\n" * 1000)
    tap.said(Who.CLIENT, b"RCPT TO:<to@c.test>\r\n")
    assert len(rig.rows) == KEPT


@pytest.mark.parametrize(
    ("who", "line", "shown"),
    [
        (Who.CLIENT, b"AUTH PLAIN AGEAc2VjcmV0", "AUTH PLAIN ***"),
        (Who.CLIENT, b"auth login", "auth login"),
        (Who.CLIENT, b"AUTH SCRAM-SHA-256-PLUS", "AUTH SCRAM-SHA-256-PLUS"),
        (Who.CLIENT, b"AUTH hunter2", "*** (12 characters)"),
        (Who.CLIENT, b"c2VjcmV0", "*** (8 characters)"),
        (Who.CLIENT, b"Dear Sir, MAIL FROM:<a@b>", "*** (25 characters)"),
        (Who.CLIENT, b"NOOP secret", "*** (11 characters)"),
        (Who.CLIENT, b"DATA", "DATA"),
        (Who.CLIENT, b"BDAT 12 LAST", "BDAT 12 LAST"),
        (Who.CLIENT, b"EHLO \x1b[2J", "EHLO ?[2J"),
        (Who.SERVER, b"334 UGFzc3dvcmQ6", "334 ***"),
        (Who.SERVER, b"550 5.1.1 \xff no", "550 5.1.1 \ufffd no"),
    ],
)
def test_only_what_is_no_secret_is_shown(who: Who, line: bytes, shown: str) -> None:
    rig = Rig("b.test")
    rig.tap().said(who, line + b"\r\n")
    assert rig.texts == [shown]


def test_lines_may_come_in_pieces() -> None:
    rig = Rig("b.test")
    tap = rig.tap()
    for octet in b"250-one\r\n250 two\r\n":
        tap.said(Who.SERVER, bytes([octet]))
    assert rig.texts == ["250-one", "250 two"]


def test_a_trace_that_is_over_gets_nothing() -> None:
    rig = Rig("b.test", "to@c.test")
    tap = rig.tap()
    for trace in rig.traces.all():
        rig.traces.remove(trace)
    tap.said(Who.CLIENT, b"RCPT TO:<to@c.test>\r\n")
    assert (rig.rows, bool(rig.traces)) == ([], False)
