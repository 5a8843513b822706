"""The receiver's machine: replies in order, rules at their stages, one result for any cutting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.sink.dialogue import Dialogue
from mqcd.sink.outputs import (
    GARBAGE,
    Close,
    Deliver,
    Flood,
    Limits,
    Output,
    Pause,
    Received,
    Refused,
    Report,
    Send,
    Silence,
    StartTls,
    Trickle,
)
from mqcd.sink.reading import MAX_LINE
from mqcd.sink.rules import Rules

NOW = 1_700_000_000_123

HELLO = b"EHLO client.example\r\n"
ENVELOPE = b"MAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.com>\r\n"
MESSAGE = ENVELOPE + b"DATA\r\nSubject: x\r\n\r\n..dot\r\n.\r\n"


def dialogue(*rules: str, tls: bool = False, limits: Limits | None = None) -> Dialogue:
    return Dialogue(
        limits=limits or Limits(),
        rules=Rules.parse(rules),
        peer="127.0.0.1:4711",
        tls_offered=tls,
    )


def normal(outputs: list[Output]) -> list[Output]:
    """Outputs with neighbouring Sends joined and Reports before them: neither how replies are grouped
    nor what stands between them and a Report, which tells of a reply and sends nothing, has a meaning."""
    joined: list[Output] = []
    reports = [output for output in outputs if isinstance(output, Report)]
    for output in outputs:
        if isinstance(output, Report):
            continue
        if joined and isinstance(output, Send) and isinstance(joined[-1], Send):
            joined[-1] = Send(joined[-1].octets + output.octets)
        else:
            joined.append(output)
    return [*reports, *joined]


def talk(machine: Dialogue, *chunks: bytes) -> list[Output]:
    outputs = machine.connect()
    for chunk in chunks:
        outputs += machine.receive(chunk, at_ms=NOW)
    return normal(outputs)


def replies(outputs: list[Output]) -> list[bytes]:
    """The reply lines, with those that Deliver stands for."""
    octets = b""
    for output in outputs:
        if isinstance(output, Send):
            octets += output.octets
        elif isinstance(output, Deliver):
            octets += output.taken
    return octets.split(b"\r\n")[:-1]


def codes(outputs: list[Output]) -> list[int]:
    return [int(line[:3]) for line in replies(outputs) if line[3:4] == b" "]


def messages(outputs: list[Output]) -> list[Received]:
    return [output.message for output in outputs if isinstance(output, Deliver)]


def others(outputs: list[Output]) -> list[Output]:
    return [output for output in outputs if not isinstance(output, Send | Deliver)]


def test_a_message_is_taken_as_it_came() -> None:
    outputs = talk(dialogue(), HELLO, MESSAGE, b"QUIT\r\n")
    assert codes(outputs) == [220, 250, 250, 250, 354, 250, 221]
    assert messages(outputs) == [
        Received(
            sender="a@example.org",
            recipients=("b@example.com",),
            content=b"Subject: x\r\n\r\n.dot\r\n",
            helo="client.example",
            peer="127.0.0.1:4711",
            at_ms=NOW,
        )
    ]
    assert others(outputs) == [Close()]


def test_the_extensions_are_announced() -> None:
    assert replies(talk(dialogue(limits=Limits(announce="h", max_size=99)), HELLO))[1:] == [
        b"250-h",
        b"250-PIPELINING",
        b"250-8BITMIME",
        b"250-SMTPUTF8",
        b"250-SIZE 99",
        b"250 ENHANCEDSTATUSCODES",
    ]


def test_the_extensions_can_be_chosen() -> None:
    limits = Limits(announce="h", extensions=("SIZE",), max_size=1)
    assert replies(talk(dialogue(limits=limits), HELLO))[1:] == [b"250-h", b"250 SIZE 1"]
    limits = Limits(announce="h", extensions=())
    assert replies(talk(dialogue(limits=limits), HELLO))[1:] == [b"250 h"]


def test_helo_has_no_extensions() -> None:
    outputs = talk(dialogue(), b"HELO old\r\n", MESSAGE)
    assert replies(outputs)[1] == b"250 sink.localdomain"
    assert messages(outputs)[0].helo == "old"


def test_parameters_are_understood() -> None:
    mail = (
        b"mail from:<\xc3\xa4@example.org> SIZE=10 BODY=8bitmime SMTPUTF8\r\n"
        b"rcpt to:<\xc3\xb6@example.com>\r\ndata\r\n.\r\n"
    )
    [message] = messages(talk(dialogue(), HELLO, mail))
    assert (message.sender, message.recipients) == ("ä@example.org", ("ö@example.com",))
    assert (message.body, message.smtputf8, message.content) == ("8BITMIME", True, b"")


def test_odd_but_legal_paths() -> None:
    mail = b'MAIL FROM:<>\r\nRCPT TO:<"a>b | \\"c"@example.com>\r\nDATA\r\n.\r\n'
    [message] = messages(talk(dialogue(), HELLO, mail))
    assert (message.sender, message.recipients) == ("", ('"a>b | \\"c"@example.com',))


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (b"MAIL", b"501 5.5.4"),
        (b"MAIL FROM:a@b", b"501 5.5.4"),
        (b"MAIL FROM:<a@b", b"501 5.5.4"),
        (b"MAIL FROM:<a@b>SIZE=1", b"501 5.5.4"),
        (b"MAIL FROM:<a@b> SIZE=x", b"501 5.5.4"),
        (b"MAIL FROM:<a@b> SIZE=" + b"9" * 30, b"501 5.5.4"),
        (b"MAIL FROM:<a@b> SIZE=1001", b"552 5.3.4"),
        (b"MAIL FROM:<a@b> SIZE=1 SIZE=1", b"501 5.5.4"),
        (b"MAIL FROM:<a@b> BODY=9BIT", b"501 5.5.4"),
        (b"MAIL FROM:<a@b> SMTPUTF8=Y", b"501 5.5.4"),
        (b"MAIL FROM:<a@b> FOO=1", b"555 5.5.4"),
        (b"MAIL FROM:<\xc3\xa4@b>", b"553 5.6.7"),
        (b"MAIL FROM:<\xff@b> SMTPUTF8", b"501 5.5.2"),
        (b"RCPT TO:<a@b>", b"503 5.5.1"),
        (b"DATA", b"503 5.5.1"),
        (b"DATA now", b"503 5.5.1"),
        (b"RSET now", b"501 5.5.4"),
        (b"EHLO ", b"501 5.5.4"),
        (b"VRFY bob", b"252 2.5.2"),
        (b"NOOP bob", b"250 2.0.0"),
        (b"STARTTLS", b"502 5.5.1"),
        (b"", b"500 5.5.2"),
        (b"BDAT 3 LAST", b"500 5.5.2"),
        (b"\xff\xfe\x00\x01", b"500 5.5.2"),
        (b"NOOP\r", b"500 5.5.2"),
        (b"X" * MAX_LINE, b"500 5.5.6"),
    ],
)
def test_a_wrong_command_gets_its_reply_and_changes_nothing(command: bytes, reply: bytes) -> None:
    outputs = talk(dialogue(limits=Limits(max_size=1000)), HELLO, command + b"\r\n", MESSAGE)
    lines = replies(outputs)
    assert lines[7].startswith(reply)
    assert len(messages(outputs)) == 1
    assert codes(outputs)[3:] == [250, 250, 354, 250]


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (b"RCPT TO:<>", b"501 5.1.3"),
        (b"RCPT TO:b@example.com", b"501 5.5.4"),
        (b"RCPT TO:<b@example.com> SIZE=1", b"555 5.5.4"),
        (b"RCPT TO:<\xc3\xa4@b>", b"553 5.6.7"),
        (b"DATA", b"554 5.5.1"),
        (b"MAIL FROM:<c@d>", b"503 5.5.1"),
    ],
)
def test_a_wrong_command_in_a_transaction(command: bytes, reply: bytes) -> None:
    outputs = talk(dialogue(), HELLO, b"MAIL FROM:<a@example.org>\r\n", command + b"\r\n")
    assert replies(outputs)[-1].startswith(reply)


def test_before_hello_there_is_no_mail() -> None:
    assert codes(talk(dialogue(), b"MAIL FROM:<a@b>\r\nRSET\r\nMAIL FROM:<a@b>\r\n")) == [
        220,
        503,
        250,
        503,
    ]


def test_a_bare_line_feed_is_refused() -> None:
    outputs = talk(dialogue(), b"EHLO x\nEHLO y\r\n")
    assert codes(outputs) == [220, 500, 250]


def test_a_line_of_the_longest_length_is_read() -> None:
    outputs = talk(dialogue(), b"NOOP " + b"x" * (MAX_LINE - 7) + b"\r\n")
    assert codes(outputs) == [220, 250]


def test_an_endless_line_gets_one_reply() -> None:
    outputs = talk(dialogue(), *[b"x" * 1000] * 50, b"\r\nNOOP\r\n")
    assert codes(outputs) == [220, 500, 250]


def test_rset_and_ehlo_forget_the_transaction() -> None:
    for forget in (b"RSET\r\n", b"EHLO again\r\n"):
        outputs = talk(dialogue(), HELLO, ENVELOPE, forget, b"DATA\r\n")
        assert codes(outputs)[-2:] == [250, 503]


def test_too_many_recipients_and_too_large_a_message() -> None:
    limits = Limits(max_recipients=1, max_size=5)
    outputs = talk(
        dialogue(limits=limits),
        HELLO,
        ENVELOPE + b"RCPT TO:<c@d>\r\nDATA\r\n123456\r\n.\r\n" + ENVELOPE + b"DATA\r\n1\r\n.\r\n",
    )
    assert codes(outputs)[3:] == [250, 452, 354, 552, 250, 250, 354, 250]
    assert [message.content for message in messages(outputs)] == [b"1\r\n"]


def test_a_refusal_concerns_its_recipient_alone() -> None:
    machine = dialogue("bad@*=550 5.1.1 No such user", "full@*=452 full")
    outputs = talk(
        machine,
        HELLO,
        b"MAIL FROM:<a@b>\r\nRCPT TO:<bad@x>\r\nRCPT TO:<good@x>\r\nRCPT TO:<full@x>\r\nDATA\r\n.\r\n",
    )
    assert replies(outputs)[8:11] == [b"550 5.1.1 No such user", b"250 2.1.5 Ok", b"452 full"]
    assert messages(outputs)[0].recipients == ("good@x",)
    refused = [output.refused for output in outputs if isinstance(output, Report)]
    assert [(each.recipient, each.reply) for each in refused] == [
        ("bad@x", "550 5.1.1 No such user"),
        ("full@x", "452 full"),
    ]
    assert refused[0] == Refused(
        sender="a@b",
        recipient="bad@x",
        reply="550 5.1.1 No such user",
        helo="client.example",
        peer="127.0.0.1:4711",
        at_ms=NOW,
    )


def test_when_all_are_refused_there_is_no_data() -> None:
    outputs = talk(dialogue("*=450 later"), HELLO, ENVELOPE + b"DATA\r\nRSET\r\n")
    assert codes(outputs)[3:] == [450, 554, 250]


def test_421_closes() -> None:
    outputs = talk(dialogue("*=421 going down"), HELLO, ENVELOPE + b"RSET\r\n")
    assert codes(outputs)[3:] == [421]
    assert others(outputs)[-1] == Close()


STAGES = [
    ("connect", []),
    ("ehlo", [220]),
    ("mail", [220, 250]),
    ("rcpt", [220, 250, 250]),
    ("data", [220, 250, 250, 250]),
    ("dot", [220, 250, 250, 250, 354]),
]


@pytest.mark.parametrize(("stage", "before"), STAGES)
def test_drop(stage: str, before: list[int]) -> None:
    outputs = talk(dialogue(f"*=drop:{stage}"), HELLO, MESSAGE, b"NOOP\r\n")
    assert codes(outputs) == before
    assert others(outputs) == [Close()]
    assert not messages(outputs)


@pytest.mark.parametrize(("stage", "before"), STAGES)
def test_stall(stage: str, before: list[int]) -> None:
    outputs = talk(dialogue(f"*=stall:{stage}"), HELLO, MESSAGE, b"NOOP\r\n")
    in_content = stage == "data"
    assert codes(outputs) == before + [354] * in_content
    assert others(outputs) == [Silence(reading=not in_content)]
    assert not messages(outputs)


def test_one_recipient_decides_for_the_connection() -> None:
    rules = ("hang@*=stall:dot", "cut@*=drop:dot", "early@*=drop:data")
    begin = b"MAIL FROM:<a@b>\r\nRCPT TO:<fine@x>\r\n"
    end = b"DATA\r\n.\r\n"
    for recipients, last in [
        (b"RCPT TO:<hang@x>\r\nRCPT TO:<cut@x>\r\n", Silence(reading=True)),
        (b"RCPT TO:<cut@x>\r\nRCPT TO:<hang@x>\r\n", Close()),
        (b"RCPT TO:<hang@x>\r\nRCPT TO:<early@x>\r\n", Close()),
    ]:
        outputs = talk(dialogue(*rules), HELLO, begin + recipients + end)
        assert others(outputs) == [last]
        assert not messages(outputs)


def test_a_rule_ends_with_its_transaction() -> None:
    machine = dialogue("cut@*=drop:dot")
    outputs = talk(machine, HELLO, b"MAIL FROM:<a@b>\r\nRCPT TO:<cut@x>\r\nRSET\r\n", MESSAGE)
    assert len(messages(outputs)) == 1


def test_slow_for_everyone_waits_before_each_reply() -> None:
    outputs = talk(dialogue("*=slow:7"), HELLO, MESSAGE, b"QUIT\r\n")
    assert others(outputs) == [Pause(7)] * 7 + [Close()]
    assert [type(output) for output in outputs[:-1]] == [Pause, Send] * 5 + [
        Pause,
        Deliver,
        Pause,
        Send,
    ]


def test_slow_acts_from_rcpt_to_the_transactions_end() -> None:
    machine = dialogue("snail@*=slow:9", "tortoise@*=slow:5")
    transaction = b"MAIL FROM:<a@b>\r\nRCPT TO:<%b@x>\r\nRCPT TO:<%b@x>\r\nDATA\r\n.\r\n"
    outputs = talk(machine, HELLO, transaction % (b"snail", b"tortoise"), MESSAGE)
    assert others(outputs) == [Pause(9), Pause(5), Pause(9), Pause(9)]


def test_starttls_forgets_what_was_said_in_clear() -> None:
    machine = dialogue(tls=True)
    outputs = talk(machine, HELLO, b"STARTTLS\r\nMAIL FROM:<injected@x>\r\n")
    assert b"250 STARTTLS" in replies(outputs)
    assert codes(outputs) == [220, 250, 220]
    assert others(outputs) == [StartTls()]
    machine.tls_started()
    after = normal(machine.receive(ENVELOPE, at_ms=NOW))
    assert codes(after) == [503, 503]
    after = normal(machine.receive(HELLO + MESSAGE + b"STARTTLS\r\n", at_ms=NOW))
    assert b"STARTTLS" not in b"".join(replies(after))
    assert codes(after)[-1] == 502
    assert messages(after)[0].tls


_PIECES = [
    HELLO,
    MESSAGE,
    ENVELOPE,
    b"DATA\r\n",
    b"RCPT TO:<slow@x>\r\n",
    b"RCPT TO:<bad@x>\r\n",
    b"RCPT TO:<cut@x>\r\n",
    b".\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"..",
    b"RSET\r\n",
    b"QUIT\r\n",
    b"STARTTLS\r\n",
    b"\xff\x00",
    b"y" * MAX_LINE,
    b"MAIL FROM:<a@b> SIZE=3 BODY=8BITMIME\r\n",
    b"BDAT 5\r\nNOOP\r",
    b"BDAT 0\r\n",
    b"BDAT 4 LAST\r\n.\r\n.",
    b"LHLO x\r\n",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=15).map(b"".join), st.booleans())
def test_byte_at_a_time_equals_all_at_once(octets: bytes, lmtp: bool) -> None:
    rules = ("bad@*=550 5.1.1 No", "slow@*=slow:3", "cut@*=drop:dot")
    limits = Limits(max_size=3000, lmtp=lmtp, extensions=("CHUNKING",))
    at_once = talk(dialogue(*rules, tls=True, limits=limits), octets)
    one_by_one = talk(
        dialogue(*rules, tls=True, limits=limits), *(octets[i : i + 1] for i in range(len(octets)))
    )
    assert one_by_one == at_once


@given(st.binary(max_size=300))
def test_any_octets_are_survived(octets: bytes) -> None:
    outputs = talk(dialogue(), octets, b"\r\n.\r\nRSET\r\n")
    assert 220 <= codes(outputs)[0] < 600


POINTS = ["connect", "ehlo", "mail", "rcpt", "data", "dot"]
PROPER = [220, 250, 250, 250, 354, 250]
"""The codes of a message's replies, stage by stage."""


def staged(rule: str) -> list[Output]:
    """What comes of one message, each command in a chunk of its own."""
    lines = (HELLO + MESSAGE).splitlines(keepends=True)
    return talk(dialogue(f"*={rule}"), *lines[:4], b"".join(lines[4:]), b"NOOP\r\n")


@pytest.mark.parametrize("stage", POINTS)
def test_garbage_comes_at_its_stage_and_nothing_behind_it(stage: str) -> None:
    outputs = staged(f"garbage:{stage}")
    garbage = outputs[-2]
    assert isinstance(garbage, Send)
    assert garbage.octets.endswith(GARBAGE)
    assert outputs[-1] == Silence(reading=True)
    proper = Send(garbage.octets.removesuffix(GARBAGE))
    assert codes([*outputs[:-2], proper]) == PROPER[: POINTS.index(stage)]
    assert messages(outputs) == []


@pytest.mark.parametrize("stage", POINTS)
def test_an_endless_reply_begins_at_its_stage(stage: str) -> None:
    outputs = staged(f"endless:{stage}")
    assert codes(outputs) == PROPER[: POINTS.index(stage)]
    last = outputs[-1]
    assert isinstance(last, Flood)
    assert set(last.octets.splitlines()) == {b"250-one line more"}
    assert messages(outputs) == []


@pytest.mark.parametrize("stage", POINTS)
def test_a_wrong_reply_replaces_the_right_one_without_effect(stage: str) -> None:
    outputs = staged(f"reply:{stage}:399 odd")
    at = POINTS.index(stage)
    got = codes(outputs)
    assert got[: at + 1] == [*PROPER[:at], 399]
    assert got[-1] == 250, "NOOP is still answered"
    if stage != "connect":
        assert messages(outputs) == []


def test_a_wrong_421_closes() -> None:
    assert staged("reply:mail:421 4.3.2 going")[-1] == Close()


def test_content_behind_a_wrong_reply_at_the_dot_is_forgotten() -> None:
    machine = dialogue("a@b=reply:dot:451 no")
    other = MESSAGE.replace(b"b@example.com", b"a@b")
    outputs = talk(machine, HELLO, other, MESSAGE)
    assert codes(outputs)[-4:] == [250, 250, 354, 250]
    assert [mail.recipients for mail in messages(outputs)] == [("b@example.com",)]


@pytest.mark.parametrize("stage", POINTS[:-1])
def test_a_reply_drips_at_its_stage_alone(stage: str) -> None:
    outputs = staged(f"drip:{stage}:7")
    [trickle] = [each for each in outputs if isinstance(each, Trickle)]
    assert (int(trickle.octets[:3]), trickle.wait_ms) == (PROPER[POINTS.index(stage)], 7)
    assert len(messages(outputs)) == 1


def test_the_answer_to_a_message_drips() -> None:
    [deliver] = [each for each in staged("drip:dot:7") if isinstance(each, Deliver)]
    assert deliver.wait_ms == 7
