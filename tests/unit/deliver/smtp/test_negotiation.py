"""Before mail: TLS as the policy wants it, and logging in."""

import base64
import hmac

import pytest

from mqcd.config.settings import TlsPolicy
from mqcd.core.model import Phase
from mqcd.deliver.smtp.auth import Login
from mqcd.deliver.smtp.dialogue import Dialogue
from mqcd.deliver.smtp.exchange import Manners, State
from mqcd.deliver.smtp.negotiation import offered
from tests.unit.deliver.dialogues import HELLO, greeted, offer

USER, PASSWORD = "relay@example.org", "pass word+ü"
REQUIRED = (TlsPolicy.ENCRYPT, TlsPolicy.VERIFY)


def by_tls(policy: TlsPolicy) -> Manners:
    return Manners(hello="me.example", tls=policy)


def ended(dialogue: Dialogue) -> tuple[str, str]:
    """Status and text of the end of a session that is over."""
    assert dialogue.state is State.ENDED
    assert dialogue.end is not None
    assert 400 <= dialogue.end.code < 500
    return dialogue.end.status, dialogue.end.text


# ---------------------------------------------------------------- TLS


@pytest.mark.parametrize("policy", [TlsPolicy.MAY, *REQUIRED])
def test_tls_is_started_where_it_is_offered(policy: TlsPolicy) -> None:
    dialogue = greeted(by_tls(policy))
    dialogue.receive(offer("STARTTLS"))
    assert dialogue.take() == b"STARTTLS\r\n"
    assert dialogue.receive(b"220 go\r\n") is State.TLS


def test_only_ascii_letters_of_a_keyword_have_a_case() -> None:
    assert set(
        offered([b"mx", b"starttls", b"8BitMime", "\u017ftarttls".encode(), "S\u0131ZE 5".encode()])
    ) == {
        "STARTTLS",
        "8BITMIME",
        "\u017fTARTTLS",
        "S\u0131ZE",
    }


def test_tls_is_not_started_under_policy_none() -> None:
    dialogue = greeted(by_tls(TlsPolicy.NONE))
    assert dialogue.receive(offer("STARTTLS")) is State.READY
    assert dialogue.take() == b""


@pytest.mark.parametrize("policy", REQUIRED)
@pytest.mark.parametrize(
    "said", [offer(), offer("STARTTLS") + b"454 4.7.0 not now\r\n", offer("STARTTLS") + b"502 no\r\n"]
)
def test_nothing_goes_on_without_the_tls_that_is_required(policy: TlsPolicy, said: bytes) -> None:
    dialogue = greeted(by_tls(policy))
    dialogue.receive(said)
    status, text = ended(dialogue)
    assert status == "4.7.4"
    assert text.startswith("TLS is required")
    assert dialogue.phase is Phase.TLS


@pytest.mark.parametrize("policy", REQUIRED)
def test_helo_has_no_tls_to_offer(policy: TlsPolicy) -> None:
    dialogue = greeted(Manners(hello="me.example", tls=policy, say_helo=True))
    dialogue.receive(b"250 mx\r\n")
    assert ended(dialogue)[0] == "4.7.4"


@pytest.mark.parametrize("said", [offer(), offer("STARTTLS") + b"454 not now\r\n"])
def test_under_policy_may_mail_goes_without(said: bytes) -> None:
    dialogue = greeted(by_tls(TlsPolicy.MAY))
    assert dialogue.receive(said) is State.READY


def test_a_connection_that_began_with_tls_needs_no_more_of_it() -> None:
    dialogue = greeted(Manners(hello="me.example", tls=TlsPolicy.VERIFY, implicit_tls=True))
    assert dialogue.receive(offer("STARTTLS")) is State.READY


def test_what_was_offered_in_clear_is_forgotten() -> None:
    dialogue = greeted(by_tls(TlsPolicy.ENCRYPT))
    dialogue.receive(offer("STARTTLS", "CHUNKING"))
    dialogue.receive(b"220 go\r\n")
    dialogue.take()
    dialogue.tls_started()
    assert dialogue.take() == b"EHLO me.example\r\n"
    dialogue.receive(offer("DSN"))
    assert "CHUNKING" not in dialogue.extensions
    assert "DSN" in dialogue.extensions


# ---------------------------------------------------------------- login


def logging_in(
    offered: str, *, secured: bool = True, mechanism: str = "", initial: bool = True, cleartext: bool = False
) -> Dialogue:
    """A session that has been offered `AUTH offered`."""
    login = Login(
        username=USER,
        password=PASSWORD,
        mechanism=mechanism,
        initial_response=initial,
        cleartext=cleartext,
    )
    dialogue = greeted(Manners(hello="me.example", implicit_tls=secured, login=login))
    dialogue.receive(offer(*([f"AUTH {offered}"] if offered else [])))
    return dialogue


def encoded(text: str) -> bytes:
    return base64.b64encode(text.encode())


def test_plain_shows_who_we_are_in_one_line() -> None:
    dialogue = logging_in("LOGIN PLAIN")
    assert dialogue.take() == b"AUTH PLAIN " + encoded(f"\0{USER}\0{PASSWORD}") + b"\r\n"
    assert dialogue.phase is Phase.AUTH
    assert dialogue.receive(b"235 2.7.0 welcome\r\n") is State.READY


def test_plain_waits_to_be_asked_where_the_setting_says_so() -> None:
    dialogue = logging_in("PLAIN", initial=False)
    assert dialogue.take() == b"AUTH PLAIN\r\n"
    dialogue.receive(b"334 \r\n")
    assert dialogue.take() == encoded(f"\0{USER}\0{PASSWORD}") + b"\r\n"
    assert dialogue.receive(b"235 welcome\r\n") is State.READY


def test_login_answers_twice() -> None:
    dialogue = logging_in("LOGIN")
    assert dialogue.take() == b"AUTH LOGIN\r\n"
    dialogue.receive(b"334 VXNlcm5hbWU6\r\n")
    assert dialogue.take() == encoded(USER) + b"\r\n"
    dialogue.receive(b"334 UGFzc3dvcmQ6\r\n")
    assert dialogue.take() == encoded(PASSWORD) + b"\r\n"
    assert dialogue.receive(b"235 welcome\r\n") is State.READY


def test_cram_md5_comes_first_and_never_shows_the_password() -> None:
    dialogue = logging_in("PLAIN LOGIN CRAM-MD5")
    assert dialogue.take() == b"AUTH CRAM-MD5\r\n"
    dialogue.receive(b"334 " + encoded("<1896.697170952@postoffice>") + b"\r\n")
    digest = hmac.new(PASSWORD.encode(), b"<1896.697170952@postoffice>", "md5").hexdigest()
    assert dialogue.take() == encoded(f"{USER} {digest}") + b"\r\n"
    assert dialogue.receive(b"235 welcome\r\n") is State.READY


def test_cram_md5_of_rfc_2195() -> None:
    login = Login(username="tim", password="tanstaaftanstaaf")
    dialogue = greeted(Manners(hello="me.example", implicit_tls=True, login=login))
    dialogue.receive(offer("AUTH CRAM-MD5"))
    dialogue.receive(b"334 PDE4OTYuNjk3MTcwOTUyQHBvc3RvZmZpY2UucmVzdG9uLm1jaS5uZXQ+\r\n")
    assert b"dGltIGI5MTNhNjAyYzdlZGE3YTQ5NWI0ZTZlNzMzNGQzODkw" in dialogue.take()


def test_external_only_where_it_is_asked_for() -> None:
    assert ended(logging_in("EXTERNAL"))[0] == "4.7.8"
    dialogue = logging_in("EXTERNAL PLAIN", mechanism="EXTERNAL")
    assert dialogue.take() == b"AUTH EXTERNAL " + encoded(USER) + b"\r\n"


def test_an_empty_identity_is_written_as_an_equals_sign() -> None:
    login = Login(username="", password="", mechanism="EXTERNAL")
    dialogue = greeted(Manners(hello="me.example", implicit_tls=True, login=login))
    dialogue.receive(offer("AUTH EXTERNAL"))
    assert dialogue.take() == b"AUTH EXTERNAL =\r\n"


def test_the_configured_mechanism_is_used() -> None:
    assert logging_in("CRAM-MD5 PLAIN", mechanism="PLAIN").take().startswith(b"AUTH PLAIN ")
    assert "PLAIN" in ended(logging_in("CRAM-MD5", mechanism="PLAIN"))[1]


@pytest.mark.parametrize("mechanisms", ["PLAIN LOGIN", "CRAM-MD5"])
def test_nothing_of_a_login_is_shown_without_tls(mechanisms: str) -> None:
    dialogue = logging_in(mechanisms, secured=False)
    assert dialogue.take() == b""
    assert ended(dialogue) == ("4.7.8", "the login needs TLS, lest the password be seen")
    assert dialogue.phase is Phase.AUTH


@pytest.mark.parametrize("mechanism", ["PLAIN", "CRAM-MD5"])
def test_a_login_goes_in_clear_where_the_setting_says_so(mechanism: str) -> None:
    dialogue = logging_in(mechanism, secured=False, cleartext=True)
    assert dialogue.take().startswith(f"AUTH {mechanism}".encode())


def test_no_mail_goes_where_the_login_cannot_be_shown() -> None:
    assert "offers none" in ended(logging_in(""))[1]
    assert "does not offer" in ended(logging_in("GSSAPI NTLM"))[1]


def test_auth_of_old_is_understood() -> None:
    login = Login(username=USER, password=PASSWORD)
    dialogue = greeted(Manners(hello="me.example", implicit_tls=True, login=login))
    dialogue.receive(offer("AUTH=LOGIN"))
    assert dialogue.take() == b"AUTH LOGIN\r\n"


@pytest.mark.parametrize("code", [b"535 5.7.8", b"454 4.7.0", b"530 5.7.0", b"421 4.7.0"])
def test_a_login_that_is_refused_never_bounces_mail(code: bytes) -> None:
    dialogue = logging_in("PLAIN")
    dialogue.receive(code + b" no\r\n")
    assert ended(dialogue)[0].startswith("4.7.")


@pytest.mark.parametrize(
    "form", [PASSWORD, encoded(PASSWORD).decode(), encoded(f"\0{USER}\0{PASSWORD}").decode()]
)
def test_a_password_that_is_sent_back_is_not_passed_on(form: str) -> None:
    dialogue = logging_in("PLAIN")
    dialogue.receive(f"535 5.7.8 {form} is wrong\r\n".encode())
    assert ended(dialogue)[1].endswith("(hidden) is wrong")


def test_the_password_is_not_in_the_login_s_repr() -> None:
    assert PASSWORD not in repr(Manners(hello="x", login=Login(username=USER, password=PASSWORD)))


@pytest.mark.parametrize("challenge", [b"not base64!", b""])
def test_a_challenge_that_makes_no_sense_calls_the_login_off(challenge: bytes) -> None:
    dialogue = logging_in("PLAIN")
    dialogue.take()
    dialogue.receive(b"334 " + challenge + b"\r\n")
    assert dialogue.take() == b"*\r\n"
    dialogue.receive(b"501 cancelled\r\n")
    assert ended(dialogue)[0] == "4.7.8"


def test_endless_challenges_end_the_session() -> None:
    dialogue = logging_in("LOGIN")
    for _ in range(10):
        if dialogue.receive(b"334 YQ==\r\n") is State.ENDED:
            break
    assert ended(dialogue)[0] == "4.5.0"


def test_a_long_name_waits_to_be_asked() -> None:
    login = Login(username="u" * 400, password=PASSWORD)
    dialogue = greeted(Manners(hello="me.example", implicit_tls=True, login=login))
    dialogue.receive(offer("AUTH PLAIN"))
    assert dialogue.take() == b"AUTH PLAIN\r\n"


def test_replies_before_they_are_asked_for_log_nobody_in() -> None:
    dialogue = logging_in("PLAIN")
    dialogue.take()
    assert dialogue.receive(b"235 welcome\r\n235 welcome\r\n") is State.ENDED
    early = greeted(Manners(hello="me.example", login=Login(username=USER, password=PASSWORD)))
    assert early.receive(offer("STARTTLS") + b"220 go\r\n235 welcome\r\n") is State.ENDED


def test_hello_is_the_first_word() -> None:
    dialogue = Dialogue(Manners(hello="me.example", lmtp=True))
    dialogue.receive(HELLO)
    assert dialogue.take() == b"LHLO me.example\r\n"
