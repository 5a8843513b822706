"""ESMTP parameters of MAIL and RCPT."""

from __future__ import annotations

import pytest

from mqcd.core.model import Body
from mqcd.submit.esmtp.parameters import (
    DSN_PARAMETERS,
    KEY,
    MAX_KEY,
    NO_PARAMETERS,
    MailParameters,
    parse_mail,
    parse_rcpt,
)
from mqcd.submit.esmtp.refusal import DoorRefused

ALL = frozenset({"SIZE", "BODY", "SMTPUTF8", "HOLDFOR", "HOLDUNTIL", "MT-PRIORITY", KEY}) | DSN_PARAMETERS


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("", NO_PARAMETERS),
        ("SIZE=1000", MailParameters(size=1000)),
        ("size=0 body=8bitmime", MailParameters(body=Body.EIGHT)),
        ("BODY=7BIT", NO_PARAMETERS),
        ("SMTPUTF8 SIZE=7", MailParameters(size=7, smtputf8=True)),
        ("HOLDFOR=86400", MailParameters(holdfor=86_400_000)),
        ("HOLDUNTIL=2030-01-01T00:00:00Z", MailParameters(holduntil=1_893_456_000_000)),
        ("holduntil=2030-01-01T02:00:00.250+02:00", MailParameters(holduntil=1_893_456_000_250)),
        ("HOLDUNTIL=1960-01-01T00:00:00Z", MailParameters(holduntil=1)),
        ("MT-PRIORITY=9", MailParameters(priority=9)),
        ("mt-priority=-9", MailParameters(priority=-9)),
        ("x-mqcd-key=Order-1/a+3D+2B", MailParameters(key="Order-1/a=+")),
        ("X-MQCD-KEY=" + "+3D" * MAX_KEY, MailParameters(key="=" * MAX_KEY)),
        ("ENVID=a+2Bb RET=hdrs", MailParameters(dsn="RET=HDRS ENVID=a+2Bb")),
    ],
)
def test_mail(text: str, parameters: MailParameters) -> None:
    assert parse_mail(text, ALL) == parameters


@pytest.mark.parametrize(
    ("text", "dsn"),
    [
        ("", ""),
        ("NOTIFY=never", "NOTIFY=NEVER"),
        ("orcpt=utf-8;ü@b.example", "ORCPT=utf-8;\\x{FC}@b.example"),
        (
            "ORCPT=rfc822;Bob@example.com NOTIFY=success,DELAY",
            "NOTIFY=SUCCESS,DELAY ORCPT=rfc822;Bob@example.com",
        ),
    ],
)
def test_rcpt(text: str, dsn: str) -> None:
    assert parse_rcpt(text, ALL) == dsn


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("X-MQCD-KEY", 501),
        ("X-MQCD-KEY=", 501),
        ("X-MQCD-KEY=a=b", 501),
        ("X-MQCD-KEY=a+b", 501),
        ("X-MQCD-KEY=a+20b", 501),
        ("X-MQCD-KEY=a+0Ab", 501),
        ("X-MQCD-KEY=" + "a" * (MAX_KEY + 1), 501),
        ("SIZE=", 501),
        ("SIZE=-1", 501),
        ("SIZE=1e9", 501),
        ("SIZE=٣", 501),
        ("SIZE=" + "9" * 21, 501),
        ("SIZE=1 SIZE=1", 501),
        ("BODY=BINARYMIME", 501),
        ("BODY", 501),
        ("SMTPUTF8=yes", 501),
        ("HOLDFOR=0", 501),
        ("HOLDFOR=007", 501),
        ("HOLDFOR=1000000000", 501),
        ("HOLDFOR=1h", 501),
        ("HOLDFOR=5 HOLDUNTIL=2030-01-01T00:00:00Z", 501),
        ("HOLDUNTIL=", 501),
        ("HOLDUNTIL=2030-01-01", 501),
        ("HOLDUNTIL=2030-02-30T00:00:00Z", 501),
        ("HOLDUNTIL=2030-01-01T00:00:00", 501),
        ("MT-PRIORITY=10", 501),
        ("MT-PRIORITY=+3", 501),
        ("MT-PRIORITY=-0", 501),
        ("MT-PRIORITY", 501),
        ("ENVID=a+0D+0Ab", 501),
        ("ENVID=+7F", 501),
        ("RET=ALL", 501),
        ("ENVID=", 501),
        ("ENVID=a=b", 501),
        ("ENVID=+2b", 501),
        ("ENVID=" + "x" * 101, 501),
        ("=5", 501),
        ("FOO=1", 555),
        ("NOTIFY=NEVER", 555),
        ("\u017fIZE=1", 501),
        ("S\u0131ZE=1", 501),
        ("BODY=8B\u0131TM\u0131ME", 501),
        ("SIZE=1\u00a0RET=FULL", 501),
    ],
)
def test_mail_refuses(text: str, code: int) -> None:
    with pytest.raises(DoorRefused) as refusal:
        parse_mail(text, ALL)
    assert (refusal.value.reply.code, refusal.value.reply.status) == (code, "5.5.4")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NOTIFY=", 501),
        ("NOTIFY=NEVER,DELAY", 501),
        ("NOTIFY=DELAY,DELAY", 501),
        ("NOTIFY=LATER", 501),
        ("ORCPT=bob@example.com", 501),
        ("ORCPT=rfc822;", 501),
        ("ORCPT=rf c822;a", 501),
        ("ORCPT=rfc822;" + "x" * 500, 501),
        ("SIZE=1", 555),
    ],
)
def test_rcpt_refuses(text: str, code: int) -> None:
    with pytest.raises(DoorRefused) as refusal:
        parse_rcpt(text, ALL)
    assert refusal.value.reply.code == code


@pytest.mark.parametrize("text", ["SIZE=1", "BODY=7BIT"])
def test_what_is_switched_off_is_not_taken(text: str) -> None:
    with pytest.raises(DoorRefused, match="not supported"):
        parse_mail(text, frozenset({"SMTPUTF8"}))
