"""Rules are read as written, the first match wins, and a bad rule is named with what is right."""

import pytest

from mqcd.sink.rules import (
    ACCEPT,
    Accept,
    Answer,
    Drip,
    Drop,
    Endless,
    Garbage,
    Refuse,
    RuleError,
    Rules,
    Stage,
    Stall,
    parse_rule,
)


@pytest.mark.parametrize(
    ("text", "pattern", "action"),
    [
        ("*=accept", "*", ACCEPT),
        ("bob@example.com=450 try later", "bob@example.com", Refuse(reply="450 try later")),
        ("*@b=550 5.1.1 No such user", "*@b", Refuse(reply="550 5.1.1 No such user")),
        ("*=421", "*", Refuse(reply="421 Refused by rule")),
        ("*=554 key=value accept", "*", Refuse(reply="554 key=value accept")),
        ("*=slow:0", "*", Accept(wait_ms=0)),
        ("a?@b=slow:250", "a?@b", Accept(wait_ms=250)),
        ("bounce+a=b@c=stall:rcpt", "bounce+a=b@c", Stall(stage=Stage.RCPT)),
        ("*=drop:connect", "*", Drop(stage=Stage.CONNECT)),
        ("a@b=reply:dot:354 5.1.1 go: on=x", "a@b", Answer(stage=Stage.DOT, reply="354 5.1.1 go: on=x")),
        ("*=drip:mail:250", "*", Drip(stage=Stage.MAIL, wait_ms=250)),
    ],
)
def test_a_rule_is_read(text: str, pattern: str, action: object) -> None:
    rule = parse_rule(text)
    assert (rule.pattern, rule.action) == (pattern, action)


@pytest.mark.parametrize("stage", list(Stage))
@pytest.mark.parametrize(
    ("word", "kind"), [("stall", Stall), ("drop", Drop), ("garbage", Garbage), ("endless", Endless)]
)
def test_every_fault_is_for_every_stage(
    word: str, kind: type[Stall | Drop | Garbage | Endless], stage: Stage
) -> None:
    assert parse_rule(f"*={word}:{stage.value}").action == kind(stage=stage)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected PATTERN=ACTION"),
        ("accept", "expected PATTERN=ACTION"),
        ("=accept", "expected PATTERN=ACTION"),
        ("*=250 fine", "expected PATTERN=ACTION"),
        ("*=acept", "slow:MS"),
        ("*=450try", "expected PATTERN=ACTION"),
        ("*=stall:lunch", "no stage 'lunch'; the stages are connect, ehlo, mail, rcpt, data, dot"),
        ("*=drop:", "no stage ''"),
        ("*=slow:soon", "slow takes milliseconds"),
        ("*=slow:-1", "slow takes milliseconds"),
        ("*=slow:3600001", "slow takes milliseconds"),
        ("*=drip:dot", "drip takes milliseconds, 0 to 3600000, as in drip:dot:250"),
        ("*=drip:5:dot", "no stage '5'"),
        ("*=reply:data", "reply takes a stage and a reply line"),
        ("*=reply:data:650 no", "reply takes a stage and a reply line"),
        ("*=reply:250 ok", "no stage '250 ok'"),
        ("*=reply:mail:250 a\r\nb", "one line"),
        ("a@b=reply:mail:250 ok", "write '*=reply:mail:250 ok'"),
        ("a@b=endless:ehlo", "no recipient is known yet"),
        ("*=550 a\r\n250 b", "one line"),
        ("*=550 " + "x" * 507, "at most 510 octets"),
        ("*=550 4.2.1 Full", "begins with 5"),
        ("bob@example.com=drop:ehlo", "write '*=drop:ehlo'"),
        ("?*=stall:connect", "no recipient is known yet"),
    ],
)
def test_a_bad_rule_is_named(text: str, says: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rule(text)
    assert says in str(caught.value)
    assert repr(text) in str(caught.value)


def test_the_first_matching_rule_wins() -> None:
    rules = Rules.parse(["bob@*=550 no", "*@example.com=450 wait", "BOB@example.com=accept"])
    assert rules.for_recipient("bob@example.com") == Refuse(reply="550 no")
    assert rules.for_recipient("eve@example.com") == Refuse(reply="450 wait")
    assert rules.for_recipient("eve@example.org") is ACCEPT


def test_case_does_not_matter() -> None:
    assert Rules.parse(["Bob@EXAMPLE.com=550 no"]).for_recipient("bOB@example.COM") != ACCEPT


def test_a_pattern_matches_the_whole_address() -> None:
    rules = Rules.parse(["b@example.com=550 no"])
    assert rules.for_recipient("bb@example.com") is ACCEPT
    assert rules.for_recipient("b@example.com.org") is ACCEPT


def test_only_a_bare_star_is_for_everyone() -> None:
    assert Rules.parse(["*@*=550 no", "a@b=slow:1"]).for_everyone is ACCEPT
    rules = Rules.parse(["a@b=slow:1", "*=slow:2", "*=slow:3"])
    assert rules.for_everyone == Accept(wait_ms=2)
