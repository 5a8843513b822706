"""The session without its socket: every command in every state, limits, and what counts as bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import ListenerSslSettings
from mqcd.core.errors import IllegalTransition
from mqcd.core.model import Body
from mqcd.core.ports import Refusal
from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp.caller import Channel
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.esmtp.states import TABLE, Event, State
from mqcd.submit.esmtp.transaction import MAX_ENVELOPE
from mqcd.submit.policy.load import FIRST, MOST_DELAY_MS, Load
from mqcd.submit.policy.relay import relay_policy
from mqcd.submit.policy.rules import NO_SSL, Gate, Rules
from mqcd.submit.session.conversation import MAX_REFUSED, Delay, Place, Skip
from mqcd.submit.session.dialogue import Dialogue
from tests.fakes.clock import FakeClock
from tests.unit.submit.support import LOOPBACK, server

EHLO = "EHLO client.example"
MAIL = "MAIL FROM:<from@example.net>"
RCPT = "RCPT TO:<to@example.com>"


LATENT = ListenerSslSettings(latent=True, certfile=(Path("cert"),))
TLS = Channel(tls="TLSv1.3")


class Desk:
    """A dialogue, and what it refused."""

    def __init__(self, client: str = "192.0.2.1", ssl: ListenerSslSettings = NO_SSL, **settings: Any) -> None:
        self.refusals: list[Refusal] = []
        self.gate = Gate()
        made = server(**settings)
        rules = Rules(made, relay_policy(made, {}), self.gate, ssl=ssl)
        self.dialogue = Dialogue(rules, "test", client, self.refusals.append)

    def say(self, *lines: str) -> str:
        """Say the lines; the reply to the last."""
        reply = b""
        for line in lines:
            reply = self.dialogue.command(line.encode())
            assert reply.endswith(b"\r\n")
        return reply.decode()

    @property
    def reasons(self) -> list[str]:
        return [refusal.reason for refusal in self.refusals]


INWARD = {
    *(Event.SENT, Event.MORE, Event.FORGET, Event.SECURED),
    *(Event.CHALLENGE, Event.CHECK, Event.IDENTIFIED, Event.DENIED, Event.REVERSE),
}
"""Events that only some states have."""


def test_every_state_before_the_content_has_every_command() -> None:
    others = {State.CONTENT, State.LOGIN, State.CHECKING, State.HANDSHAKE, State.REVERSED, State.CLOSED}
    open_states = [row for state, row in TABLE.items() if state not in others]
    assert all(set(row) - INWARD == set(Event) - INWARD for row in open_states)


@pytest.mark.parametrize("lines", [(EHLO, MAIL, RCPT, "DATA"), ("QUIT",), (EHLO, "STARTTLS")])
def test_no_command_is_legal_in_content_or_once_closed(lines: tuple[str, ...]) -> None:
    desk = Desk(ssl=LATENT)
    desk.say(*lines)
    for command in ("EHLO x", MAIL, RCPT, "DATA", "RSET", "QUIT", "NOOP"):
        with pytest.raises(IllegalTransition):
            desk.say(command)


def test_only_content_can_be_sent() -> None:
    desk = Desk()
    for line in (EHLO, MAIL, RCPT):
        desk.say(line)
        with pytest.raises(IllegalTransition):
            desk.dialogue.sent()


def test_a_dropped_message_leaves_its_commands_excused() -> None:
    desk = Desk(maxbadreqs=1)
    desk.say(EHLO, MAIL)
    desk.dialogue.drop()
    assert desk.say(RCPT, RCPT, "DATA").startswith("503 5.5.1 ")
    assert desk.say(MAIL, RCPT, "DATA").startswith("354 ")


def test_ehlo_offers_what_the_settings_say() -> None:
    lines = Desk(maxmsgsize=1000).say(EHLO).splitlines()
    assert lines == [
        "250-mx.example.org",
        "250-PIPELINING",
        "250-SIZE 1000",
        "250-8BITMIME",
        "250-SMTPUTF8",
        "250-DSN",
        "250-CHUNKING",
        "250 ENHANCEDSTATUSCODES",
    ]


@pytest.mark.parametrize(
    ("switch", "keyword"),
    [
        ("ext_pipelining", "PIPELINING"),
        ("ext_size", "SIZE"),
        ("ext_8bitmime", "8BITMIME"),
        ("ext_smtputf8", "SMTPUTF8"),
        ("ext_dsn", "DSN"),
        ("ext_chunking", "CHUNKING"),
    ],
)
def test_each_extension_has_a_switch(switch: str, keyword: str) -> None:
    off: dict[str, Any] = {switch: False}
    assert keyword in Desk().say(EHLO)
    assert keyword not in Desk(**off).say(EHLO)


def test_smtputf8_needs_8bitmime() -> None:
    assert "SMTPUTF8" not in Desk(ext_8bitmime=False).say(EHLO)


def test_the_greeting_is_the_operators() -> None:
    made = server(smtpgreet="no spam, please")
    assert Rules(made, relay_policy(made, {}), Gate()).greeting == b"220 mx.example.org no spam, please\r\n"


def test_helo() -> None:
    desk = Desk()
    assert desk.say("HELO client.example") == "250 mx.example.org\r\n"
    assert not desk.dialogue.esmtp


def test_a_message() -> None:
    desk = Desk()
    assert desk.say(EHLO, MAIL + " BODY=8BITMIME RET=FULL").startswith("250 2.1.0 ")
    assert desk.say(RCPT + " NOTIFY=NEVER").startswith("250 2.1.5 ")
    assert desk.say("rcpt to: <two@example.com>").startswith("250 2.1.5 ")
    assert desk.say("DATA").startswith("354 ")
    assert desk.dialogue.state is State.CONTENT
    transaction = desk.dialogue.transaction
    assert transaction is not None
    assert transaction.sender == "from@example.net"
    assert transaction.parameters.body is Body.EIGHT
    assert transaction.parameters.dsn == "RET=FULL"
    assert transaction.recipients == ["to@example.com", "two@example.com"]
    assert transaction.recipient_dsn == ["NOTIFY=NEVER", ""]
    desk.dialogue.sent()
    assert desk.say(MAIL).startswith("250 ")
    assert desk.refusals == []


@pytest.mark.parametrize(
    ("lines", "reply"),
    [
        (["MAIL FROM:<a@b.example>"], "503 5.5.1"),
        (["RCPT TO:<a@b.example>"], "503 5.5.1"),
        (["DATA"], "503 5.5.1"),
        ([EHLO, RCPT], "503 5.5.1"),
        ([EHLO, "DATA"], "503 5.5.1"),
        ([EHLO, MAIL, MAIL], "503 5.5.1"),
        ([EHLO, MAIL, "DATA"], "554 5.5.1"),
        ([EHLO, MAIL, RCPT, "DATA now"], "501 5.5.4"),
        (["EHLO"], "501 5.5.4"),
        (["EHLO   "], "501 5.5.4"),
        (["HELO"], "501 5.5.4"),
        ([EHLO, "MAIL"], "501 5.5.4"),
        ([EHLO, "MAIL FROM:"], "501 5.5.4"),
        ([EHLO, "MAIL TO:<a@b.example>"], "501 5.5.4"),
        ([EHLO, "MAIL FROM:<a b@c.example>"], "501 5.1.7"),
        ([EHLO, "MAIL FROM:<a@b.example"], "501 5.1.7"),
        ([EHLO, "MAIL FROM:<a@b.example>SIZE=1"], "501 5.1.7"),
        ([EHLO, "MAIL FROM:<a>"], "501 5.1.7"),
        ([EHLO, "MAIL FROM:<a@b.example> FOO=1"], "555 5.5.4"),
        ([EHLO, "MAIL FROM:<ü@b.example>"], "553 5.6.7"),
        ([EHLO, "MAIL FROM:<>"], "250 2.1.0"),
        ([EHLO, "MAIL FROM:<postmaster>"], "250 2.1.0"),
        ([EHLO, "MAIL FROM:<ü@b.example> SMTPUTF8"], "250 2.1.0"),
        ([EHLO, MAIL, "RCPT"], "501 5.5.4"),
        ([EHLO, MAIL, "RCPT TO:<>"], "501 5.1.3"),
        ([EHLO, MAIL, "RCPT TO:<a@@example.com>"], "501 5.1.3"),
        ([EHLO, MAIL, "RCPT TO:<a@[300.1.1.1]>"], "501 5.1.3"),
        ([EHLO, MAIL, "RCPT TO:<ü@example.com>"], "553 5.6.7"),
        ([EHLO, MAIL, "RCPT TO:<a@evil.example>"], "554 5.7.1"),
        ([EHLO, MAIL, "RCPT TO:<@example.com:a@evil.example>"], "554 5.7.1"),
        ([EHLO, MAIL, "RCPT TO:<postmaster>"], "250 2.1.5"),
        ([EHLO, MAIL, RCPT + " FOO"], "555 5.5.4"),
        (["RSET"], "250 2.0.0"),
        (["RSET now"], "501 5.5.4"),
        ([EHLO, MAIL, "RSET", MAIL], "250 2.1.0"),
        ([EHLO, MAIL, EHLO, MAIL], "250 2.1.0"),
        (["NOOP"], "250 2.0.0"),
        (["NOOP whatever"], "250 2.0.0"),
        (["VRFY someone"], "252 2.0.0"),
        (["HELP"], "214 2.0.0"),
        (["QUIT"], "221 2.0.0"),
        (["QUIT now"], "501 5.5.4"),
        (["EXPN list"], "500 5.5.1"),
        (["STARTTLS"], "500 5.5.1"),
        (["AUTH PLAIN"], "500 5.5.1"),
        ([""], "500 5.5.1"),
        ([" MAIL"], "500 5.5.1"),
        (["MAILFROM:<a@b.example>"], "500 5.5.1"),
        (["NOOP \0"], "500 5.5.2"),
        (["EHLO a\rb"], "500 5.5.2"),
    ],
)
def test_replies(lines: list[str], reply: str) -> None:
    assert Desk().say(*lines).startswith(reply + " ")


def test_octets_that_are_not_utf8() -> None:
    assert Desk().dialogue.command(b"EHLO \xff").startswith(b"500 5.5.2 ")


def test_a_bare_postmaster_is_ours() -> None:
    desk = Desk()
    desk.say(EHLO, MAIL, "RCPT TO:<Postmaster>")
    assert desk.dialogue.transaction is not None
    assert desk.dialogue.transaction.recipients == ["Postmaster@example.org"]


def test_a_listed_client_relays() -> None:
    desk = Desk("127.0.0.1", relay_clients=(LOOPBACK,))
    assert desk.say(EHLO, MAIL, "RCPT TO:<a@anywhere.example>").startswith("250 ")


def test_size_is_refused_at_mail() -> None:
    desk = Desk(maxmsgsize=1000)
    assert desk.say(EHLO, MAIL + " SIZE=1001").startswith("552 5.3.4 ")
    assert desk.say(MAIL + " SIZE=1000").startswith("250 ")
    assert desk.reasons == [Reason.SIZE]
    assert desk.refusals[0].sender == "from@example.net"


def test_recipients_are_limited() -> None:
    desk = Desk(maxrecips=2)
    desk.say(EHLO, MAIL, RCPT, RCPT)
    assert desk.say(RCPT).startswith("452 4.5.3 ")
    assert desk.say("DATA").startswith("354 ")
    assert desk.refusals[0].recipient == "to@example.com"


def test_an_endless_list_of_recipients_ends() -> None:
    desk = Desk()
    desk.say(EHLO, MAIL)
    recipient = "RCPT TO:<" + "x" * 60 + "@example.com> ORCPT=rfc822;" + "y" * 400
    count = 0
    while desk.say(recipient).startswith("250 "):
        count += 1
    assert count < MAX_ENVELOPE // 400
    assert desk.reasons == [Reason.RECIPIENTS]


def test_messages_are_limited() -> None:
    desk = Desk(maxmessages=1)
    desk.say(EHLO, MAIL, RCPT, "DATA")
    desk.dialogue.sent()
    assert desk.say(MAIL).startswith("421 4.7.0 ")
    assert desk.dialogue.state is State.CLOSED


def test_bad_commands_are_limited() -> None:
    desk = Desk(maxbadreqs=3)
    assert desk.say("FOO").startswith("500 ")
    assert desk.say("DATA").startswith("503 ")
    assert desk.say("BAZ").startswith("500 ")
    assert desk.say("BAR").startswith("421 4.7.0 ")
    assert desk.dialogue.state is State.CLOSED
    assert desk.reasons == [Reason.SYNTAX, Reason.SEQUENCE, Reason.SYNTAX, Reason.BAD_COMMANDS]


def test_no_limit_of_bad_commands() -> None:
    desk = Desk(maxbadreqs=0)
    assert desk.say(*["FOO"] * 50).startswith("500 ")


def test_what_was_pipelined_behind_a_refused_mail_is_not_bad() -> None:
    desk = Desk(maxmsgsize=10, maxbadreqs=1)
    desk.say(EHLO, MAIL + " SIZE=11")
    assert desk.say(RCPT, RCPT, RCPT, "DATA").startswith("503 5.5.1 ")
    assert desk.dialogue.state is State.REFUSED


def test_refused_recipients_are_not_bad_commands() -> None:
    desk = Desk(maxbadreqs=1)
    assert desk.say(EHLO, MAIL, *["RCPT TO:<a@evil.example>"] * 9, "DATA").startswith("554 5.5.1 ")
    assert desk.reasons == [Reason.RELAY] * 9 + [Reason.SEQUENCE]


def test_a_closed_door_says_so_at_mail() -> None:
    desk = Desk()
    desk.say(EHLO)
    desk.gate.closed = Reply(code=452, status="4.3.1", text="Disk full")
    assert desk.say(MAIL) == "452 4.3.1 Disk full\r\n"
    desk.gate.closed = None
    assert desk.say(MAIL).startswith("250 ")
    assert desk.reasons == [Reason.CLOSED]


def test_a_refusal_names_everything() -> None:
    desk = Desk()
    desk.say(EHLO, MAIL, "RCPT TO:<a@evil.example>")
    assert desk.refusals == [
        Refusal(
            reason="relay",
            reply=Reply(code=554, status="5.7.1", text="Relay access denied"),
            listener="test",
            client="192.0.2.1",
            sender="from@example.net",
            recipient="a@evil.example",
        )
    ]


@pytest.mark.parametrize(
    ("settings", "parameter"),
    [
        ({"ext_size": False}, "SIZE=1"),
        ({"ext_8bitmime": False}, "BODY=7BIT"),
        ({"ext_8bitmime": False}, "SMTPUTF8"),
        ({"ext_smtputf8": False}, "SMTPUTF8"),
        ({"ext_dsn": False}, "RET=FULL"),
    ],
)
def test_parameters_of_extensions_that_are_off(settings: dict[str, Any], parameter: str) -> None:
    assert Desk(**settings).say(EHLO, f"{MAIL} {parameter}").startswith("555 ")


@pytest.mark.parametrize(
    "line", ["MA\u0131L FROM:<a@b.example>", "EHLO\u00a0c", "\u017fTARTTLS", "RSET\u3000"]
)
def test_only_ascii_letters_have_a_case(line: str) -> None:
    assert Desk().say(EHLO, line).startswith("500 5.5.1 ")


@pytest.mark.parametrize("space", ["\u3000", "\u00a0", "\u2003"])
def test_only_ascii_blanks_are_blanks(space: str) -> None:
    assert Desk().say(EHLO, f"MAIL FROM:{space}<a@b.example>").startswith("501 ")
    assert Desk().say(EHLO, f"MAIL FROM:<a@b.example>{space}SIZE=5").startswith("501 ")


@pytest.mark.parametrize("odd", ["\u202e", "\u00ad", "\u0085"])
def test_odd_recipients_are_refused_one_by_one(odd: str) -> None:
    desk = Desk()
    desk.say(EHLO, MAIL + " SMTPUTF8", RCPT)
    assert desk.say(f"RCPT TO:<a{odd}b@example.com>").startswith("501 5.1.3 ")
    assert desk.say("DATA").startswith("354 ")
    assert desk.reasons == ["recipient"]


def test_refused_recipients_of_a_stranger_end_the_session() -> None:
    desk = Desk()
    desk.say(EHLO, MAIL, RCPT)
    for _ in range(MAX_REFUSED):
        assert desk.say("RCPT TO:<a@elsewhere.example>").startswith("554 ")
    assert desk.say("RCPT TO:<a@elsewhere.example>").startswith("421 4.7.0 ")
    assert desk.dialogue.state is State.CLOSED
    assert desk.reasons[-1] == Reason.REFUSALS


def test_a_client_that_may_relay_has_more_of_them() -> None:
    desk = Desk("127.0.0.1", relay_clients=(LOOPBACK,))
    desk.say(EHLO, MAIL)
    for _ in range(MAX_REFUSED + 1):
        assert desk.say("RCPT TO:<>").startswith("501 ")
    assert desk.say(RCPT).startswith("250 ")


def test_too_many_recipients_are_no_guesses() -> None:
    desk = Desk(maxrecips=1)
    desk.say(EHLO, MAIL, RCPT)
    for _ in range(MAX_REFUSED + 1):
        assert desk.say(RCPT).startswith("452 ")


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("GET / HTTP/1.1", "GET"),
        ("x" * 30, "x" * 20 + "..."),
        ("A\u202eB", "A?B"),
        ("AUTH PLAIN c2VjcmV0", "AUTH"),
    ],
)
def test_what_was_no_command_is_reported_and_nothing_behind_it(line: str, command: str) -> None:
    desk = Desk()
    desk.say(line)
    assert [refusal.command for refusal in desk.refusals] == [command]


def test_what_follows_a_login_is_not_told() -> None:
    desk = Desk(maxbadreqs=0)
    desk.say("AUTH LOGIN", "dXNlcg", "c2VjcmV0")
    assert [refusal.command for refusal in desk.refusals] == ["AUTH", "", ""]


@pytest.mark.parametrize(
    ("lines", "reply"),
    [
        (["STARTTLS"], "503 5.5.1"),
        ([EHLO, "STARTTLS"], "220 2.0.0"),
        ([EHLO, "starttls"], "220 2.0.0"),
        (["HELO client.example", "STARTTLS"], "220 2.0.0"),
        ([EHLO, "STARTTLS now"], "501 5.5.4"),
        ([EHLO, MAIL, "STARTTLS"], "503 5.5.1"),
        ([EHLO, MAIL, RCPT, "STARTTLS"], "503 5.5.1"),
        ([EHLO, MAIL, "RSET", "STARTTLS"], "220 2.0.0"),
        ([EHLO, "MAIL FROM:<a>", "STARTTLS"], "220 2.0.0"),
    ],
)
def test_replies_to_starttls(lines: list[str], reply: str) -> None:
    assert Desk(ssl=LATENT).say(*lines).startswith(reply + " ")


def test_tls_makes_the_session_begin_again() -> None:
    desk = Desk(ssl=LATENT)
    assert "STARTTLS\r\n" in desk.say(EHLO)
    desk.say("STARTTLS")
    desk.dialogue.secured(TLS)
    assert (desk.dialogue.helo, desk.dialogue.esmtp, desk.dialogue.state) == ("", False, State.START)
    assert desk.say(MAIL).startswith("503 5.5.1 Say EHLO first")
    assert "STARTTLS" not in desk.say(EHLO)
    assert desk.say("STARTTLS").startswith("500 5.5.1 ")
    assert desk.say(MAIL).startswith("250 ")


@pytest.mark.parametrize("state", [(EHLO,), (EHLO, MAIL), (EHLO, MAIL, RCPT, "DATA"), ("QUIT",)])
def test_tls_begins_where_it_was_announced_alone(state: tuple[str, ...]) -> None:
    desk = Desk(ssl=LATENT)
    desk.say(*state)
    with pytest.raises(IllegalTransition):
        desk.dialogue.secured(TLS)


@pytest.mark.parametrize("ssl", [NO_SSL, replace(LATENT, latent=False), ListenerSslSettings(latent=True)])
def test_starttls_is_not_offered_without_reason(ssl: ListenerSslSettings) -> None:
    desk = Desk(ssl=ssl)
    assert "STARTTLS" not in desk.say(EHLO)
    assert desk.say("STARTTLS").startswith("500 5.5.1 ")


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (EHLO, "250"),
        ("NOOP", "250 2.0.0"),
        ("QUIT", "221 2.0.0"),
        ("HELO client.example", "530 5.7.0"),
        (MAIL, "530 5.7.0"),
        (RCPT, "530 5.7.0"),
        ("DATA", "530 5.7.0"),
        ("RSET", "530 5.7.0"),
        ("VRFY someone", "530 5.7.0"),
        ("HELP", "530 5.7.0"),
        ("AUTH PLAIN AHVzZXIAcGVuY2ls", "530 5.7.0"),
        ("BDAT 5 LAST", "530 5.7.0"),
        ("EXPN list", "500 5.5.1"),
    ],
)
def test_mandatory_tls_comes_before_other_commands(line: str, reply: str) -> None:
    desk = Desk(ssl=replace(LATENT, mandatory=True))
    for greeting in ((), (EHLO,)):
        assert desk.say(*greeting, line)[: len(reply)] == reply
        if desk.dialogue.state is State.CLOSED:
            return
        assert desk.dialogue.next_wait() == (Skip(5) if line.startswith("BDAT") else None)
    assert set(desk.reasons) <= {Reason.TLS, Reason.SYNTAX}


def test_mandatory_tls_opens_all_commands() -> None:
    desk = Desk(ssl=replace(LATENT, mandatory=True))
    desk.say(EHLO, "STARTTLS")
    desk.dialogue.secured(TLS)
    assert desk.say(EHLO, MAIL, RCPT, "DATA").startswith("354 ")


def test_a_refused_chunk_is_dropped_before_the_delay() -> None:
    desk = Desk(delay_badreq=500, ext_chunking=False)
    desk.say(EHLO, "BDAT 5 LAST")
    assert list(desk.dialogue.waits) == [Skip(5), Delay(500)]


def test_mail_waits_for_a_place_and_a_refusal_calls_that_off() -> None:
    desk = Desk()
    desk.gate.load = load = Load(FakeClock().monotonic)
    load.memory_is(3, 100)
    for session in range(FIRST):
        load.enter(session)
    desk.say(EHLO, MAIL)
    assert list(desk.dialogue.waits) == [Delay(MOST_DELAY_MS), Place()]
    desk.dialogue.retract(Reason.SENDER, Reply(code=550, status="5.7.1", text="no"))
    assert list(desk.dialogue.waits) == [Delay(MOST_DELAY_MS)]
