"""AUTH in the dialogue: every reply, and who may send what once logged in (RFC 4954)."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import AuthType, ListenerSslSettings, SenderRightSettings
from mqcd.core.ports import Refusal
from mqcd.core.smtp.reply import Reply
from mqcd.net.shared.used_rates import UsedRates
from mqcd.submit.auth.failures import MOST_OF_CLIENT, MOST_OF_USER, Failures
from mqcd.submit.auth.login import MOST_IN_SESSION, Access
from mqcd.submit.auth.senders import Senders
from mqcd.submit.esmtp.caller import Channel
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.esmtp.states import State
from mqcd.submit.policy.relay import relay_policy
from mqcd.submit.policy.rules import NO_SSL, Gate, Rules
from mqcd.submit.session.conversation import Check
from mqcd.submit.session.dialogue import Dialogue
from tests.fakes.sasl import ScramClient
from tests.unit.submit.auth.support import SERVER_NONCE, USERS, find
from tests.unit.submit.support import server

EHLO = "EHLO client.example"
OURS = "user@example.com"
TLS = Channel(tls="TLSv1.3", bindings={"tls-server-end-point": b"hash"})


def counted() -> Failures:
    return Failures(UsedRates.alone(), UsedRates.alone())


class Users:
    """The users of the RFCs' examples."""

    def __contains__(self, name: str) -> bool:
        return name in USERS

    def find(self, name: str) -> Any:
        return find(name)


class Desk:
    """A dialogue where users may log in."""

    def __init__(
        self,
        *,
        channel: Channel = TLS,
        failures: Failures | None = None,
        client: str = "192.0.2.1",
        mandatory: bool = False,
        compat: bool = False,
        rights: tuple[SenderRightSettings, ...] = (),
        types: tuple[AuthType, ...] = tuple(AuthType),
        tls_types: tuple[AuthType, ...] = tuple(AuthType),
        ssl: ListenerSslSettings = NO_SSL,
        **settings: Any,
    ) -> None:
        self.refusals: list[Refusal] = []
        self.failures = failures or counted()
        made = server(**settings)
        access = Access(
            types=types,
            tls_types=tls_types,
            mandatory=mandatory,
            compat=compat,
            book=Users(),
            failures=self.failures,
            senders=Senders(rights, {"example.com"}),
            host="mx.example.org",
            now=lambda: 1,
            nonce=lambda: SERVER_NONCE,
        )
        rules = Rules(made, relay_policy(made, {}), Gate(), access, ssl=ssl)
        self.dialogue = Dialogue(rules, "test", client, self.refusals.append)
        self.dialogue.secured(channel)

    def say(self, *lines: str | bytes) -> str:
        """Say the lines, passwords compared with those of the examples; the reply to the last."""
        reply = b""
        for line in lines:
            reply = self.dialogue.command(line if isinstance(line, bytes) else line.encode())
            if isinstance(self.dialogue.next_wait(), Check):
                assert reply == b""
                login = self.dialogue.login
                assert login is not None
                assert login.checking is not None
                user, password = login.checking.user, login.checking.password
                reply = self.dialogue.checked(user in USERS and USERS[user].plain == password)
        return reply.decode()


def encoded(text: str | bytes) -> str:
    return b64encode(text if isinstance(text, bytes) else text.encode()).decode()


GOOD = "AUTH PLAIN " + encoded("\0user\0pencil")
BAD = "AUTH PLAIN " + encoded("\0user\0pencils")


def test_mechanisms_are_offered_over_tls_alone() -> None:
    keyword = "AUTH SCRAM-SHA-256-PLUS SCRAM-SHA-256 CRAM-MD5 PLAIN LOGIN\r\n"
    assert keyword in Desk().say(EHLO)
    plain = Desk(channel=Channel())
    assert "AUTH" not in plain.say(EHLO)
    assert plain.say(GOOD).startswith("538 5.7.11 ")
    assert [refusal.reason for refusal in plain.refusals] == [Reason.AUTH]


def test_settings_offer_mechanisms_without_tls() -> None:
    desk = Desk(channel=Channel(), tls_types=(AuthType.PLAIN, AuthType.LOGIN))
    assert "AUTH SCRAM-SHA-256 CRAM-MD5\r\n" in desk.say(EHLO)
    assert desk.say(GOOD).startswith("538 ")


def test_no_binding_no_plus_and_no_certificate_no_external() -> None:
    certified = Channel(tls="TLSv1.3", identities=("user",))
    assert "AUTH SCRAM-SHA-256 EXTERNAL CRAM-MD5 PLAIN LOGIN\r\n" in Desk(channel=certified).say(EHLO)


def test_the_old_form_is_listed_on_request() -> None:
    reply = Desk(compat=True, types=(AuthType.PLAIN,)).say(EHLO)
    assert "AUTH PLAIN\r\n" in reply
    assert "AUTH=PLAIN\r\n" in reply


def test_plain_logs_in_and_may_relay() -> None:
    desk = Desk()
    assert desk.say(EHLO, GOOD).startswith("235 2.7.0 ")
    assert desk.dialogue.user == "user"
    assert desk.say(f"MAIL FROM:<{OURS}>", "RCPT TO:<any@elsewhere.example>").startswith("250 ")
    assert not desk.refusals


def test_plain_in_two_lines() -> None:
    desk = Desk()
    assert desk.say(EHLO, "AUTH PLAIN") == "334 \r\n"
    assert desk.say(encoded("\0user\0pencil")).startswith("235 ")


def test_login_asks_twice() -> None:
    desk = Desk()
    assert desk.say(EHLO, "AUTH LOGIN") == "334 VXNlcm5hbWU6\r\n"
    assert desk.say(encoded("user")) == "334 UGFzc3dvcmQ6\r\n"
    assert desk.say(encoded("pencil")).startswith("235 ")


@pytest.mark.parametrize("plus", [False, True])
def test_scram_logs_in(plus: bool) -> None:
    desk = Desk()
    flag, binding = ("p=tls-server-end-point", b"hash") if plus else ("n", b"")
    client = ScramClient("user", "pencil", flag=flag, binding=binding)
    name = "SCRAM-SHA-256-PLUS" if plus else "SCRAM-SHA-256"
    first = desk.say(EHLO, f"AUTH {name} {encoded(client.first())}")
    final = desk.say(encoded(client.final(b64decode(first[4:]))))
    assert client.trusts(b64decode(final[4:]))
    assert desk.say("").startswith("235 ")


def test_external_takes_an_empty_initial_response() -> None:
    desk = Desk(channel=Channel(tls="TLSv1.3", identities=("user", "stranger")))
    assert desk.say(EHLO, "AUTH EXTERNAL =").startswith("235 ")
    assert desk.dialogue.user == "user"


@pytest.mark.parametrize(
    ("lines", "reply"),
    [
        ((GOOD,), "503 5.5.1 "),
        ((EHLO, "AUTH"), "501 5.5.4 "),
        ((EHLO, "AUTH NTLM"), "504 5.5.4 "),
        ((EHLO, "AUTH EXTERNAL ="), "504 5.5.4 "),
        ((EHLO, BAD), "535 5.7.8 "),
        ((EHLO, "AUTH PLAIN " + encoded("\0nobody\0pencil")), "535 5.7.8 "),
        ((EHLO, "AUTH PLAIN " + encoded("tim\0user\0pencil")), "535 5.7.8 "),
        ((EHLO, "AUTH PLAIN !"), "501 5.5.2 "),
        ((EHLO, "AUTH PLAIN ="), "501 5.5.2 "),
        ((EHLO, "AUTH CRAM-MD5 dXNlcg=="), "501 5.5.2 "),
        ((EHLO, "AUTH LOGIN", "*"), "501 5.7.0 "),
        ((EHLO, GOOD, GOOD), "503 5.5.1 "),
        ((EHLO, f"MAIL FROM:<{OURS}>", GOOD), "503 5.5.1 "),
        ((EHLO, BAD, GOOD), "235 "),
        ((EHLO, "AUTH LOGIN", "*", GOOD), "235 "),
        (("HELO client.example", GOOD), "235 "),
        ((EHLO, "MAIL FROM:<bad", GOOD), "235 "),
        ((EHLO, GOOD, EHLO, f"MAIL FROM:<{OURS}> AUTH=<>"), "250 "),
        ((EHLO, GOOD, f"MAIL FROM:<{OURS}> AUTH=e+3Dmc2@example.com"), "250 "),
        ((EHLO, GOOD, f"MAIL FROM:<{OURS}> AUTH="), "501 5.5.4 "),
    ],
)
def test_replies(lines: tuple[str, ...], reply: str) -> None:
    assert Desk(maxbadreqs=0).say(*lines).startswith(reply)


@pytest.mark.parametrize("word", ["NOOP", "QUIT", "RSET", "DATA", "EHLO x", "\0"])
def test_no_response_is_a_command(word: str) -> None:
    desk = Desk()
    assert desk.say(EHLO, "AUTH PLAIN", word).startswith("501 ")
    assert desk.dialogue.state is State.READY


def test_a_line_that_cannot_be_read_ends_the_exchange() -> None:
    desk = Desk()
    desk.say(EHLO, "AUTH PLAIN")
    assert desk.dialogue.bad_line(Reply(code=500)).startswith(b"500 5.5.6 ")
    assert desk.dialogue.state is State.READY


def test_mandatory_login_comes_before_mail() -> None:
    desk = Desk(mandatory=True)
    assert desk.say(EHLO, f"MAIL FROM:<{OURS}>").startswith("530 5.7.0 ")
    assert desk.say("NOOP").startswith("250 ")
    assert desk.say(GOOD, f"MAIL FROM:<{OURS}>").startswith("250 ")


def test_failures_end_a_session_and_then_block_the_client() -> None:
    failures = counted()
    desk = Desk(failures=failures)
    for number in range(MOST_OF_CLIENT):
        if number % MOST_IN_SESSION == 0:
            desk = Desk(failures=failures)
            desk.say(EHLO)
        expected = "421 4.7.0 " if number % MOST_IN_SESSION == MOST_IN_SESSION - 1 else "535 "
        assert desk.say(BAD).startswith(expected)
    blocked = Desk(failures=failures)
    assert blocked.say(EHLO, GOOD).startswith("421 4.7.0 ")
    assert blocked.dialogue.state is State.CLOSED
    assert Desk(failures=failures, client="192.0.2.2").say(EHLO, GOOD).startswith("235 ")


def test_a_user_that_is_guessed_at_is_blocked_for_strangers() -> None:
    failures = counted()
    Desk(failures=failures, client="198.51.100.1").say(EHLO, GOOD)
    for number in range(MOST_OF_USER):
        failures.failed(f"203.0.113.{number}", "user", 1)
    assert Desk(failures=failures).say(EHLO, GOOD).startswith("454 4.7.0 ")
    assert Desk(failures=failures, client="198.51.100.1").say(EHLO, GOOD).startswith("235 ")


def scram(desk: Desk, password: str) -> Callable[[], str]:
    """Begin an exchange; the call gives the reply to its proof."""
    client = ScramClient("user", password)
    first = desk.say(EHLO, f"AUTH SCRAM-SHA-256 {encoded(client.first())}")
    return lambda: desk.say(encoded(client.final(b64decode(first[4:]))))


def cram_md5(desk: Desk, password: str) -> Callable[[], str]:
    challenge = b64decode(desk.say(EHLO, "AUTH CRAM-MD5")[4:])
    digest = hmac.new(password.encode(), challenge, "md5").hexdigest()
    return lambda: desk.say(encoded(f"user {digest}"))


def plain(desk: Desk, password: str) -> Callable[[], str]:
    def checked() -> str:
        return desk.dialogue.checked(password == "pencil").decode()

    desk.dialogue.command(EHLO.encode())
    desk.dialogue.command(f"AUTH PLAIN {encoded(f'{chr(0)}user{chr(0)}{password}')}".encode())
    return checked


@pytest.mark.parametrize("begin", [scram, cram_md5, plain])
@pytest.mark.parametrize("password", ["pencil", "guess"])
@pytest.mark.parametrize(("name", "code"), [("client", "421 4.7.0 "), ("user", "454 4.7.0 ")])
def test_no_exchange_that_a_block_meets_shows_which_password_is_right(
    begin: Callable[[Desk, str], Callable[[], str]], password: str, name: str, code: str
) -> None:
    desk = Desk()
    end = begin(desk, password)
    for number in range(MOST_OF_USER):
        client, user = ("192.0.2.1", "") if name == "client" else (f"203.0.113.{number}", "user")
        desk.failures.failed(client, user, 1)
    assert end().startswith(code)
    assert desk.dialogue.user == ""


def test_guesses_at_its_user_keep_no_certificate_out() -> None:
    desk = Desk(channel=Channel(tls="TLSv1.3", identities=("user",)))
    for number in range(MOST_OF_USER):
        desk.failures.failed(f"203.0.113.{number}", "user", 1)
    assert desk.say(EHLO, "AUTH EXTERNAL =").startswith("235 ")


def test_a_check_that_cannot_be_made_is_temporary() -> None:
    desk = Desk(maxbadreqs=1)
    desk.dialogue.command(EHLO.encode())
    desk.dialogue.command(GOOD.encode())
    assert desk.dialogue.checked(None).startswith(b"454 4.7.0 ")
    assert desk.dialogue.user == ""
    desk.dialogue.command(GOOD.encode())
    assert desk.dialogue.checked(None).startswith(b"421 ")


def test_refusals_carry_no_secret() -> None:
    desk = Desk(maxbadreqs=0)
    desk.say(EHLO, BAD, "AUTH NTLM", encoded("pencil"), "AUTH PLAIN !pencil", "pencil")
    assert "pencil" not in repr(desk.refusals)
    assert encoded("pencil") not in repr(desk.refusals)
    assert desk.refusals[0].reason == Reason.AUTH


def test_a_refusal_names_users_and_no_other_names() -> None:
    desk = Desk()
    # A password typed as the name must not be logged.
    desk.say(EHLO, BAD, "AUTH PLAIN " + encoded("\0hunter2\0x"), GOOD, "MAIL FROM:<tim@example.com>")
    assert [refusal.user for refusal in desk.refusals] == ["user", "", "user"]


def right(user: str, *addresses: str) -> SenderRightSettings:
    return SenderRightSettings(user=(user,), addresses=addresses)


@pytest.mark.parametrize(
    ("rights", "sender", "reply"),
    [
        ((), "user@example.com", "250"),
        ((), "USER@Example.COM", "250"),
        ((), "tim@example.com", "553"),
        ((), "user@example.net", "553"),
        ((), "", "250"),
        ((right("user", "tim@example.net"),), "tim@example.net", "250"),
        ((right("user", "tim@example.net"),), "user@example.com", "553"),
        ((right("user", "example.net"),), "any@example.net", "250"),
        ((right("*", "*"),), "any@example.net", "250"),
        ((right("tim", "*"),), "any@example.net", "553"),
        ((right("*", "all@example.net"), right("user", "user@example.com")), "all@example.net", "250"),
    ],
)
def test_users_send_with_their_own_addresses(
    rights: tuple[SenderRightSettings, ...], sender: str, reply: str
) -> None:
    desk = Desk(rights=rights)
    assert desk.say(EHLO, GOOD, f"MAIL FROM:<{sender}>").startswith(reply)


def test_senders_without_a_login_are_free() -> None:
    assert Desk().say(EHLO, "MAIL FROM:<tim@example.com>").startswith("250 ")


def test_a_login_does_not_survive_starttls() -> None:
    latent = ListenerSslSettings(latent=True, certfile=(Path("cert"),))
    desk = Desk(channel=Channel(), tls_types=(), ssl=latent)
    assert desk.say(EHLO, GOOD).startswith("235 ")
    assert desk.say("STARTTLS").startswith("220 ")
    desk.dialogue.secured(TLS)
    assert desk.dialogue.user == ""
    assert "AUTH SCRAM-SHA-256-PLUS " in desk.say(EHLO)
    assert desk.say(GOOD).startswith("235 ")


def test_no_login_is_offered_before_mandatory_tls() -> None:
    locked = ListenerSslSettings(latent=True, mandatory=True, certfile=(Path("cert"),))
    desk = Desk(channel=Channel(), tls_types=(), ssl=locked)
    assert "AUTH" not in desk.say(EHLO)
    assert desk.say(GOOD).startswith("530 5.7.0 ")
