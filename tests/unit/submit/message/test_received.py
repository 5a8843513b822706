"""The Received header."""

from __future__ import annotations

import email.utils

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.submit.message.received import DateCache, clean_helo, date_text, protocol, received_header


def test_one_recipient() -> None:
    header = received_header(
        helo="client.example",
        client="192.0.2.1",
        host="mx.example.org",
        protocol="ESMTP",
        spid=0xABC,
        recipient="to@example.com",
        date="Fri, 20 Nov 2026 16:47:05 +0000",
    )
    assert header == (
        b"Received: from client.example ([192.0.2.1])\r\n"
        b"\tby mx.example.org (mqcd) with ESMTP id 0000000000000ABC\r\n"
        b"\tfor <to@example.com>; Fri, 20 Nov 2026 16:47:05 +0000\r\n"
    )


def test_several_recipients_are_not_named() -> None:
    header = received_header(
        helo="c", client="2001:db8::1", host="mx", protocol="SMTP", spid=1, recipient="", date="D"
    )
    assert header == (
        b"Received: from c ([IPv6:2001:db8::1])\r\n\tby mx (mqcd) with SMTP id 0000000000000001;\r\n\tD\r\n"
    )


@pytest.mark.parametrize(
    ("esmtp", "smtputf8", "tls", "user", "name"),
    [
        (False, False, False, False, "SMTP"),
        (True, False, False, False, "ESMTP"),
        (True, False, True, True, "ESMTPSA"),
        (True, True, False, False, "UTF8SMTP"),
        (True, True, True, False, "UTF8SMTPS"),
    ],
)
def test_protocol_names(esmtp: bool, smtputf8: bool, tls: bool, user: bool, name: str) -> None:
    assert protocol(esmtp, smtputf8, tls, user) == name


@given(st.integers(0, 4_000_000_000))
def test_dates_are_those_of_the_standard_library(second: int) -> None:
    parsed = email.utils.parsedate_to_datetime(date_text(second))
    assert int(parsed.timestamp()) == second


def test_a_date_is_made_once_a_second() -> None:
    cache = DateCache()
    first = cache.text(5_000)
    assert cache.text(5_999) is first
    assert cache.text(6_000) != first


@given(st.text())
def test_helo_cannot_leave_its_place(name: str) -> None:
    cleaned = clean_helo(name)
    assert cleaned.isascii()
    assert not set(cleaned) & set(' \t\r\n\0();<>"\\@')
    assert len(cleaned) <= 255


@pytest.mark.parametrize(
    ("smtputf8", "tls", "user", "name"),
    [
        (False, False, False, "LMTP"),
        (False, True, True, "LMTPSA"),
        (True, False, True, "UTF8LMTPA"),
    ],
)
def test_protocol_names_of_lmtp(smtputf8: bool, tls: bool, user: bool, name: str) -> None:
    assert protocol(True, smtputf8, tls, user, lmtp=True) == name
