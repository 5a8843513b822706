"""Before mail: TLS as the policy wants it, and logging in."""

import base64
import hmac

import pytest

from mqcd.config.settings import TlsPolicy
from mqcd.core.model import Phase
from mqcd.deliver.smtp.auth import Login
from mqcd.deliver.smtp.client import SmtpClient
from mqcd.deliver.smtp.exchange import Options
from mqcd.deliver.smtp.handshake import offered
from mqcd.deliver.smtp.states import State
from tests.unit.deliver.smtp_clients import greeted, offer

USER, PASSWORD = "relay@example.org", "pass word+ü"
REQUIRED = (TlsPolicy.ENCRYPT, TlsPolicy.VERIFY)


def by_tls(policy: TlsPolicy) -> Options:
    return Options(hello="me.example", tls=policy)


def ended(client: SmtpClient) -> tuple[str, str]:
    """Status and text of the end of a session that is over."""
    assert client.state is State.ENDED
    assert client.end is not None
    assert 400 <= client.end.code < 500
    return client.end.status, client.end.text


# ---------------------------------------------------------------- TLS


@pytest.mark.parametrize("policy", [TlsPolicy.MAY, *REQUIRED])
def test_tls_is_started_where_it_is_offered(policy: TlsPolicy) -> None:
    client = greeted(by_tls(policy))
    client.receive(offer("STARTTLS"))
    assert client.take() == b"STARTTLS\r\n"
    assert client.receive(b"220 go\r\n") is State.TLS


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
    client = greeted(by_tls(TlsPolicy.NONE))
    assert client.receive(offer("STARTTLS")) is State.READY
    assert client.take() == b""


@pytest.mark.parametrize("policy", REQUIRED)
@pytest.mark.parametrize(
    "said", [offer(), offer("STARTTLS") + b"454 4.7.0 not now\r\n", offer("STARTTLS") + b"502 no\r\n"]
)
def test_nothing_goes_on_without_the_tls_that_is_required(policy: TlsPolicy, said: bytes) -> None:
    client = greeted(by_tls(policy))
    client.receive(said)
    status, text = ended(client)
    assert status == "4.7.4"
    assert text.startswith("TLS is required")
    assert client.phase is Phase.TLS


@pytest.mark.parametrize("policy", REQUIRED)
def test_helo_has_no_tls_to_offer(policy: TlsPolicy) -> None:
    client = greeted(Options(hello="me.example", tls=policy, say_helo=True))
    client.receive(b"250 mx\r\n")
    assert ended(client)[0] == "4.7.4"


@pytest.mark.parametrize("said", [offer(), offer("STARTTLS") + b"454 not now\r\n"])
def test_under_policy_may_mail_goes_without(said: bytes) -> None:
    client = greeted(by_tls(TlsPolicy.MAY))
    assert client.receive(said) is State.READY


def test_a_connection_that_began_with_tls_needs_no_more_of_it() -> None:
    client = greeted(Options(hello="me.example", tls=TlsPolicy.VERIFY, implicit_tls=True))
    assert client.receive(offer("STARTTLS")) is State.READY


def test_what_was_offered_in_clear_is_forgotten() -> None:
    client = greeted(by_tls(TlsPolicy.ENCRYPT))
    client.receive(offer("STARTTLS", "CHUNKING"))
    client.receive(b"220 go\r\n")
    client.take()
    client.tls_started()
    assert client.take() == b"EHLO me.example\r\n"
    client.receive(offer("DSN"))
    assert "CHUNKING" not in client.extensions
    assert "DSN" in client.extensions


# ---------------------------------------------------------------- login


def logging_in(
    offered: str, *, secured: bool = True, mechanism: str = "", initial: bool = True, cleartext: bool = False
) -> SmtpClient:
    """A session that has been offered `AUTH offered`."""
    login = Login(
        username=USER,
        password=PASSWORD,
        mechanism=mechanism,
        initial_response=initial,
        cleartext=cleartext,
    )
    client = greeted(Options(hello="me.example", implicit_tls=secured, login=login))
    client.receive(offer(*([f"AUTH {offered}"] if offered else [])))
    return client


def encoded(text: str) -> bytes:
    return base64.b64encode(text.encode())


def test_plain_shows_who_we_are_in_one_line() -> None:
    client = logging_in("LOGIN PLAIN")
    assert client.take() == b"AUTH PLAIN " + encoded(f"\0{USER}\0{PASSWORD}") + b"\r\n"
    assert client.phase is Phase.AUTH
    assert client.receive(b"235 2.7.0 welcome\r\n") is State.READY


def test_plain_waits_to_be_asked_where_the_setting_says_so() -> None:
    client = logging_in("PLAIN", initial=False)
    assert client.take() == b"AUTH PLAIN\r\n"
    client.receive(b"334 \r\n")
    assert client.take() == encoded(f"\0{USER}\0{PASSWORD}") + b"\r\n"
    assert client.receive(b"235 welcome\r\n") is State.READY


def test_login_answers_twice() -> None:
    client = logging_in("LOGIN")
    assert client.take() == b"AUTH LOGIN\r\n"
    client.receive(b"334 VXNlcm5hbWU6\r\n")
    assert client.take() == encoded(USER) + b"\r\n"
    client.receive(b"334 UGFzc3dvcmQ6\r\n")
    assert client.take() == encoded(PASSWORD) + b"\r\n"
    assert client.receive(b"235 welcome\r\n") is State.READY


def test_cram_md5_comes_first_and_never_shows_the_password() -> None:
    client = logging_in("PLAIN LOGIN CRAM-MD5")
    assert client.take() == b"AUTH CRAM-MD5\r\n"
    client.receive(b"334 " + encoded("<1896.697170952@postoffice>") + b"\r\n")
    digest = hmac.new(PASSWORD.encode(), b"<1896.697170952@postoffice>", "md5").hexdigest()
    assert client.take() == encoded(f"{USER} {digest}") + b"\r\n"
    assert client.receive(b"235 welcome\r\n") is State.READY


def test_cram_md5_of_rfc_2195() -> None:
    login = Login(username="tim", password="tanstaaftanstaaf")
    client = greeted(Options(hello="me.example", implicit_tls=True, login=login))
    client.receive(offer("AUTH CRAM-MD5"))
    client.receive(b"334 PDE4OTYuNjk3MTcwOTUyQHBvc3RvZmZpY2UucmVzdG9uLm1jaS5uZXQ+\r\n")
    assert b"dGltIGI5MTNhNjAyYzdlZGE3YTQ5NWI0ZTZlNzMzNGQzODkw" in client.take()


def test_external_only_where_it_is_asked_for() -> None:
    assert ended(logging_in("EXTERNAL"))[0] == "4.7.8"
    client = logging_in("EXTERNAL PLAIN", mechanism="EXTERNAL")
    assert client.take() == b"AUTH EXTERNAL " + encoded(USER) + b"\r\n"


def test_an_empty_identity_is_written_as_an_equals_sign() -> None:
    login = Login(username="", password="", mechanism="EXTERNAL")
    client = greeted(Options(hello="me.example", implicit_tls=True, login=login))
    client.receive(offer("AUTH EXTERNAL"))
    assert client.take() == b"AUTH EXTERNAL =\r\n"


def test_the_configured_mechanism_is_used() -> None:
    assert logging_in("CRAM-MD5 PLAIN", mechanism="PLAIN").take().startswith(b"AUTH PLAIN ")
    assert "PLAIN" in ended(logging_in("CRAM-MD5", mechanism="PLAIN"))[1]


@pytest.mark.parametrize("mechanisms", ["PLAIN LOGIN", "CRAM-MD5"])
def test_nothing_of_a_login_is_shown_without_tls(mechanisms: str) -> None:
    client = logging_in(mechanisms, secured=False)
    assert client.take() == b""
    assert ended(client) == ("4.7.8", "login requires TLS")
    assert client.phase is Phase.AUTH


@pytest.mark.parametrize("mechanism", ["PLAIN", "CRAM-MD5"])
def test_a_login_goes_in_clear_where_the_setting_says_so(mechanism: str) -> None:
    client = logging_in(mechanism, secured=False, cleartext=True)
    assert client.take().startswith(f"AUTH {mechanism}".encode())


def test_no_mail_goes_where_the_login_cannot_be_shown() -> None:
    assert "offers no AUTH" in ended(logging_in(""))[1]
    assert "does not offer" in ended(logging_in("GSSAPI NTLM"))[1]


def test_auth_of_old_is_understood() -> None:
    login = Login(username=USER, password=PASSWORD)
    client = greeted(Options(hello="me.example", implicit_tls=True, login=login))
    client.receive(offer("AUTH=LOGIN"))
    assert client.take() == b"AUTH LOGIN\r\n"


@pytest.mark.parametrize("code", [b"535 5.7.8", b"454 4.7.0", b"530 5.7.0", b"421 4.7.0"])
def test_a_login_that_is_refused_never_bounces_mail(code: bytes) -> None:
    client = logging_in("PLAIN")
    client.receive(code + b" no\r\n")
    assert ended(client)[0].startswith("4.7.")


@pytest.mark.parametrize(
    "form", [PASSWORD, encoded(PASSWORD).decode(), encoded(f"\0{USER}\0{PASSWORD}").decode()]
)
def test_a_password_that_is_sent_back_is_not_passed_on(form: str) -> None:
    client = logging_in("PLAIN")
    client.receive(f"535 5.7.8 {form} is wrong\r\n".encode())
    assert ended(client)[1].endswith("(hidden) is wrong")


def test_the_password_is_not_in_the_login_s_repr() -> None:
    assert PASSWORD not in repr(Options(hello="x", login=Login(username=USER, password=PASSWORD)))


@pytest.mark.parametrize("challenge", [b"not base64!", b""])
def test_a_challenge_that_makes_no_sense_calls_the_login_off(challenge: bytes) -> None:
    client = logging_in("PLAIN")
    client.take()
    client.receive(b"334 " + challenge + b"\r\n")
    assert client.take() == b"*\r\n"
    client.receive(b"501 cancelled\r\n")
    assert ended(client)[0] == "4.7.8"


def test_endless_challenges_end_the_session() -> None:
    client = logging_in("LOGIN")
    for _ in range(10):
        if client.receive(b"334 YQ==\r\n") is State.ENDED:
            break
    assert ended(client)[0] == "4.5.0"


def test_a_long_name_waits_to_be_asked() -> None:
    login = Login(username="u" * 400, password=PASSWORD)
    client = greeted(Options(hello="me.example", implicit_tls=True, login=login))
    client.receive(offer("AUTH PLAIN"))
    assert client.take() == b"AUTH PLAIN\r\n"


def test_replies_before_they_are_asked_for_log_nobody_in() -> None:
    client = logging_in("PLAIN")
    client.take()
    assert client.receive(b"235 welcome\r\n235 welcome\r\n") is State.ENDED
    early = greeted(Options(hello="me.example", login=Login(username=USER, password=PASSWORD)))
    assert early.receive(offer("STARTTLS") + b"220 go\r\n235 welcome\r\n") is State.ENDED
