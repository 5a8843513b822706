"""What the sink speaks where it is asked to: LMTP, CHUNKING and DSN."""

import pytest

from mqcd.sink.outputs import (
    DEFAULT_EXTENSIONS,
    OPTIONAL_EXTENSIONS,
    Close,
    Deliver,
    Limits,
    Output,
    Pause,
    Silence,
    Trickle,
)
from tests.unit.sink.test_dialogue import ENVELOPE, HELLO, codes, dialogue, messages, replies, talk

LMTP = Limits(lmtp=True)
ALL = Limits(extensions=(*DEFAULT_EXTENSIONS, *OPTIONAL_EXTENSIONS))
LHLO = b"LHLO client.example\r\n"
CONTENT = b"DATA\r\nSubject: x\r\n\r\nx\r\n.\r\n"


def lmtp(*rules: str, names: str = "abc", limits: Limits = LMTP) -> list[Output]:
    """What comes of a message to these recipients, and a NOOP behind it; its own replies only."""
    start = [LHLO, b"MAIL FROM:<s@example.org>\r\n"]
    start += [b"RCPT TO:<%c@example.com>\r\n" % ord(name) for name in names]
    machine = dialogue(*rules, limits=limits)
    talk(machine, *start)
    return machine.receive(CONTENT + b"NOOP\r\n", at_ms=0)


def test_each_recipient_has_a_reply_and_a_message_of_its_own() -> None:
    outputs = lmtp()
    assert codes(outputs) == [354, 250, 250, 250, 250]
    taken = messages(outputs)
    assert [each.recipients for each in taken] == [("a@example.com",), ("b@example.com",), ("c@example.com",)]
    assert {each.content for each in taken} == {b"Subject: x\r\n\r\nx\r\n"}


def test_a_rule_at_the_dot_is_for_its_recipient_alone() -> None:
    outputs = lmtp("b@*=reply:dot:452 4.2.2 full", "c@*=slow:7")
    assert codes(outputs) == [354, 250, 452, 250, 250]
    assert [each.recipients for each in messages(outputs)] == [("a@example.com",), ("c@example.com",)]
    # The slowest counts at DATA, and each for itself behind the dot.
    kinds = [type(output).__name__ for output in outputs]
    assert kinds == ["Pause", "Send", "Deliver", "Send", "Pause", "Deliver", "Send"]
    assert outputs[4] == Pause(7)


def test_who_is_refused_at_rcpt_has_no_reply_to_the_message() -> None:
    outputs = lmtp("b@*=550 5.1.1 no")
    assert codes(outputs) == [354, 250, 250, 250]


@pytest.mark.parametrize(
    ("action", "last"),
    [("drop:dot", Close()), ("stall:dot", Silence(reading=True)), ("reply:dot:421 4.3.2 bye", Close())],
)
def test_what_ends_the_dialogue_does_so_in_its_turn(action: str, last: Output) -> None:
    outputs = lmtp(f"b@*={action}")
    assert codes(outputs)[:2] == [354, 250]
    assert [each.recipients for each in messages(outputs)] == [("a@example.com",)]
    assert outputs[-1] == last


def test_the_reply_to_one_drips() -> None:
    outputs = lmtp("b@*=drip:dot:9")
    assert [output.wait_ms for output in outputs if isinstance(output, Deliver)] == [0, 9, 0]
    assert not [output for output in outputs if isinstance(output, Trickle)]


def test_too_much_is_refused_for_each() -> None:
    assert codes(lmtp(limits=Limits(lmtp=True, max_size=3))) == [354, 552, 552, 552, 250]


@pytest.mark.parametrize("word", [b"EHLO", b"HELO"])
def test_each_protocol_has_its_own_greeting(word: bytes) -> None:
    assert codes(talk(dialogue(limits=LMTP), word + b" x\r\n")) == [220, 500]
    assert codes(talk(dialogue(), LHLO)) == [220, 500]
    assert codes(talk(dialogue(limits=LMTP), LHLO)) == [220, 250]


# ---------------------------------------------------------------- BDAT


def chunked(*rules: str, limits: Limits = ALL) -> list[Output]:
    commands = b"BDAT 6\r\n.\r\nRSE" + b"BDAT 0\r\n" + b"BDAT 4 LAST\r\nT\r\n.NOOP\r\n"
    return talk(dialogue(*rules, limits=limits), HELLO, ENVELOPE + commands)


def test_chunks_make_a_message_whatever_is_in_them() -> None:
    outputs = chunked()
    assert codes(outputs) == [220, 250, 250, 250, 250, 250, 250, 250]
    [message] = messages(outputs)
    assert message.content == b".\r\nRSET\r\n."
    assert message.chunked


def test_chunks_are_refused_where_they_are_not_offered() -> None:
    assert b"CHUNKING" not in b"".join(replies(talk(dialogue(), HELLO)))
    outputs = talk(dialogue(), HELLO, ENVELOPE, b"BDAT 2 LAST\r\n")
    assert codes(outputs)[-1] == 500
    assert messages(outputs) == []


@pytest.mark.parametrize(
    ("before", "code"),
    [(b"", 503), (b"MAIL FROM:<a@example.org>\r\n", 554), (b"MAIL FROM:<a@b>\r\nRCPT TO:<>\r\n", 554)],
)
def test_a_chunk_that_is_not_welcome_is_read_and_has_no_effect(before: bytes, code: int) -> None:
    outputs = talk(dialogue(limits=ALL), HELLO, before, b"BDAT 6 LAST\r\nQUIT\r\n", b"NOOP\r\n")
    assert codes(outputs)[-2:] == [code, 250]
    assert messages(outputs) == []


@pytest.mark.parametrize("argument", [b"", b"x", b"-1", b"3 FIRST", b"3 LAST LAST", b"9" * 20])
def test_what_is_no_chunk_is_reported(argument: bytes) -> None:
    assert codes(talk(dialogue(limits=ALL), HELLO, ENVELOPE, b"BDAT " + argument + b"\r\n"))[-1] == 501


def test_between_chunks_nothing_but_chunks() -> None:
    begun = ENVELOPE + b"BDAT 1\r\nx"
    for command in (b"DATA", b"MAIL FROM:<a@b>", b"RCPT TO:<a@b>"):
        assert codes(talk(dialogue(limits=ALL), HELLO, begun, command + b"\r\n"))[-1] == 503
    outputs = talk(dialogue(limits=ALL), HELLO, begun, b"RSET\r\n" + ENVELOPE + b"BDAT 1 LAST\r\ny")
    assert [each.content for each in messages(outputs)] == [b"y"]


def test_too_many_octets_are_read_and_refused_at_the_end() -> None:
    outputs = chunked(limits=Limits(max_size=9, extensions=("CHUNKING",)))
    assert codes(outputs)[-4:] == [250, 250, 552, 250]
    assert messages(outputs) == []


def test_data_rules_act_at_first_dot_rules_at_last_chunk() -> None:
    assert codes(chunked("*=reply:data:451 4.3.0 later"))[4:] == [451, 451, 451, 250]
    assert codes(chunked("*=reply:dot:451 4.3.0 later"))[4:] == [250, 250, 451, 250]
    assert chunked("*=drop:data")[-1] == Close()
    assert chunked("*=stall:data")[-1] == Silence(reading=False)
    assert [each.wait_ms for each in chunked("*=drip:data:5") if isinstance(each, Trickle)] == [5]
    for rule in ("drop:data", "stall:data", "drop:dot", "reply:dot:354 what"):
        assert messages(chunked(f"*={rule}")) == []


# ---------------------------------------------------------------- DSN


def test_what_is_asked_of_reports_is_kept_as_it_came() -> None:
    mail = (
        b"MAIL FROM:<a@example.org> RET=HDRS ENVID=x+2B1\r\n"
        b"RCPT TO:<b@example.com> NOTIFY=SUCCESS,delay ORCPT=rfc822;x@y\r\n"
        b"RCPT TO:<c@example.com>\r\nDATA\r\n.\r\n"
    )
    [message] = messages(talk(dialogue(limits=ALL), HELLO, mail))
    assert message.dsn == "RET=HDRS ENVID=x+2B1"
    assert message.recipient_dsn == ("NOTIFY=SUCCESS,delay ORCPT=rfc822;x@y", "")
    each = messages(talk(dialogue(limits=Limits(lmtp=True, extensions=("DSN",))), LHLO, mail))
    assert [one.recipient_dsn for one in each] == [("NOTIFY=SUCCESS,delay ORCPT=rfc822;x@y",), ()]


@pytest.mark.parametrize("parameter", [b"RET=HDRS", b"ENVID=x"])
def test_without_the_offer_they_are_unknown(parameter: bytes) -> None:
    assert codes(talk(dialogue(), HELLO, b"MAIL FROM:<a@b> " + parameter + b"\r\n"))[-1] == 555
    rcpt = b"RCPT TO:<c@d> NOTIFY=NEVER\r\n"
    assert codes(talk(dialogue(), HELLO, b"MAIL FROM:<a@b>\r\n", rcpt))[-1] == 555


@pytest.mark.parametrize("parameter", [b"RET=ALL", b"RET=", b"ENVID=", b"ENVID=a+b=c", b"RET=FULL RET=FULL"])
def test_bad_ones_of_a_message_are_refused(parameter: bytes) -> None:
    assert codes(talk(dialogue(limits=ALL), HELLO, b"MAIL FROM:<a@b> " + parameter + b"\r\n"))[-1] == 501


@pytest.mark.parametrize("parameter", [b"NOTIFY=NEVER,DELAY", b"NOTIFY=", b"NOTIFY=OFTEN", b"ORCPT=x"])
def test_bad_ones_of_a_recipient_are_refused(parameter: bytes) -> None:
    mail = b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d> " + parameter + b"\r\n"
    assert codes(talk(dialogue(limits=ALL), HELLO, mail))[-1] == 501
