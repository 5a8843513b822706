"""Command lines as programs write them."""

from __future__ import annotations

import pytest

from mqcd.sendmail.arguments import DELIVER, LIST, NOTHING, SMTP, BadUsage, parse
from mqcd.sendmail.main import called


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-t -i", {"from_header": True, "dots": True}),
        ("-ti", {"from_header": True, "dots": True}),
        ("-oi -oem -odb a@x", {"dots": True, "recipients": ["a@x"]}),
        ("-o i", {"dots": True}),
        ("-O IgnoreDots=true -O DeliveryMode=b", {"dots": True}),
        ("-O IgnoreDots=false", {"dots": False}),
        ("-fme@x -Fname a@x b@x", {"sender": "me@x", "name": "name", "recipients": ["a@x", "b@x"]}),
        ("-f <> a@x", {"sender": "", "recipients": ["a@x"]}),
        ("-f <me@x>", {"sender": "me@x"}),
        ("-r me@x", {"sender": "me@x"}),
        (
            "-N failure,delay -R HDRS -V id1",
            {"notify": "FAILURE,DELAY", "returned": "HDRS", "envelope_id": "id1"},
        ),
        ("-N never", {"notify": "NEVER"}),
        ("-B8bitmime", {"body": "8BITMIME"}),
        ("-bs", {"mode": SMTP}),
        ("-bp", {"mode": LIST}),
        ("-bi", {"mode": NOTHING}),
        ("-bm a@x", {"mode": DELIVER, "recipients": ["a@x"]}),
        ("-q", {"flush": True}),
        ("-qf", {"flush": True, "chosen": {}}),
        ("-qIabc", {"flush": True, "chosen": {"--spid": "abc"}}),
        ("-qRb.example -qSa@", {"chosen": {"--recipient": "*b.example*", "--sender": "*a@*"}}),
        ("-v -- -odd@x", {"verbose": True, "recipients": ["-odd@x"]}),
        (
            "-G -U -Ac -C /etc/sendmail.cf -h 3 -L tag -X /dev/null -p ESMTP:h -d0.1 -em a@x",
            {"recipients": ["a@x"]},
        ),
        ("--var /v --conf=/c a@x", {"var": "/v", "conf": "/c", "recipients": ["a@x"]}),
        ("-c /c", {"conf": "/c"}),
        ("-i - a@x", {"dots": True, "recipients": ["-", "a@x"]}),
    ],
)
def test_options_are_read_as_getopt_does(line: str, expected: dict[str, object]) -> None:
    asked = parse(line.split())
    assert {name: getattr(asked, name) for name in expected} == expected


def test_an_empty_word_is_a_value() -> None:
    assert parse(["-f", "", "a@x"]).sender == ""


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("-f", "-f"),
        ("-k", "-k"),
        ("--frob", "--frob"),
        ("--var", "--var"),
        ("-bd", "mqcd run"),
        ("-bv a@x", "mqcd explain"),
        ("-bz", "-bz"),
        ("-q30m", "mqcd run"),
        ("-q!Ra", "-q!Ra"),
        ("-qR", "-qR"),
        ("-N sometimes", "sometimes"),
        ("-R half", "half"),
        ("-B 9BIT", "9BIT"),
    ],
)
def test_a_wrong_line_is_named(line: str, named: str) -> None:
    with pytest.raises(BadUsage) as raised:
        parse(line.split())
    assert named in str(raised.value)


@pytest.mark.parametrize(
    ("program", "words", "expected"),
    [
        ("/usr/sbin/sendmail", ["-t"], ["-t"]),
        ("mailq", ["-v"], ["-bp", "-v"]),
        ("/usr/bin/newaliases", [], ["-bi"]),
        ("mqcd", ["sendmail", "-t"], ["-t"]),
        ("mqcd", ["mailq"], ["-bp"]),
        ("mqcd", ["queue", "ls"], None),
        ("mqcd", [], None),
    ],
)
def test_the_name_decides(program: str, words: list[str], expected: list[str] | None) -> None:
    assert called(program, words) == expected
