"""PLAIN, LOGIN, CRAM-MD5 and EXTERNAL, and the lines of an exchange."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.submit.auth.exchange import Exchange, challenge_line
from mqcd.submit.auth.mechanisms import MECHANISMS
from mqcd.submit.auth.steps import MALFORMED, Cause, Challenge, Check, Failure, Step, Success
from tests.unit.submit.auth.support import context

TIM = b"\0tim\0tanstaaftanstaaf"


def exchange(name: str, **changes: object) -> Exchange:
    return Exchange(MECHANISMS[name], context(**changes))


def take(name: str, *responses: bytes, **changes: object) -> Step:
    """The step after these responses, none of them initial."""
    started = exchange(name, **changes)
    step = started.begin(b"")
    for response in responses:
        step = started.take(b64encode(response))
    return step


def test_plain_by_the_vector_of_rfc_4616() -> None:
    assert take("PLAIN", TIM) == Check("tim", "tanstaaftanstaaf")
    assert exchange("PLAIN").begin(b64encode(TIM)) == Check("tim", "tanstaaftanstaaf")


def test_plain_may_not_act_as_another_user() -> None:
    assert take("PLAIN", b"tim\0tim\0secret") == Check("tim", "secret")
    assert take("PLAIN", b"kurt\0tim\0secret") == Failure(Cause.CREDENTIALS, "tim")


@pytest.mark.parametrize(
    "response", [b"", b"tim", b"tim\0secret", b"\0\0secret", b"\0tim\0", b"\0a\0b\0c", b"\0\xff\0b",
                 b"\0tim\0" + b"x" * 1025, b"\0t\nim\0secret"]
)  # fmt: skip
def test_a_malformed_plain_response_fails(response: bytes) -> None:
    assert take("PLAIN", response) == MALFORMED


def test_names_and_passwords_are_prepared() -> None:
    assert take("PLAIN", "\0\uff54\uff49\uff4d\0e\u0301\u00ad".encode()) == Check("tim", "\u00e9")


def test_login_asks_for_user_and_password() -> None:
    started = exchange("LOGIN")
    assert started.begin(b"") == Challenge(b"Username:")
    assert started.take(b"dGlt") == Challenge(b"Password:")
    assert started.take(b64encode(b"secret")) == Check("tim", "secret")


def test_login_takes_the_user_as_initial_response() -> None:
    assert exchange("LOGIN").begin(b"dGlt") == Challenge(b"Password:")


def test_cram_md5_by_the_vector_of_rfc_2195() -> None:
    given = {"nonce": lambda: "1896.697170952", "host": "postoffice.reston.mci.net"}
    started = exchange("CRAM-MD5", **given)
    assert started.begin(b"") == Challenge(b"<1896.697170952@postoffice.reston.mci.net>")
    response = b64encode(b"tim b913a602c7eda7a495b4e6e7334d3890")
    assert started.take(response) == Success("tim")


@pytest.mark.parametrize("response", [b"tim", b"nobody b913a602c7eda7a495b4e6e7334d3890", b"tim x"])
def test_a_wrong_cram_md5_digest_fails(response: bytes) -> None:
    step = take("CRAM-MD5", response)
    assert isinstance(step, Failure)


def test_cram_md5_takes_no_initial_response() -> None:
    assert exchange("CRAM-MD5").begin(b"dGlt") == MALFORMED


def test_external_is_who_the_certificate_says() -> None:
    assert take("EXTERNAL", b"", identities=("tim",)) == Success("tim")
    assert exchange("EXTERNAL", identities=("tim",)).begin(b"=") == Success("tim")
    assert take("EXTERNAL", b"b@x", identities=("a@x", "b@x")) == Success("b@x")


@pytest.mark.parametrize(("named", "identities"), [(b"", ()), (b"kurt", ("tim",)), (b"", ("a", "b"))])
def test_external_is_nobody_else(named: bytes, identities: tuple[str, ...]) -> None:
    assert take("EXTERNAL", named, identities=identities) == Failure(Cause.CREDENTIALS, named.decode())


@pytest.mark.parametrize("line", [b"!", b"dGl", b"dGlt=", b"dG lt", b"dGlt\xff", b"=", b"d===", b"dGltdGlt="])
def test_bad_base64_fails(line: bytes) -> None:
    started = exchange("LOGIN")
    started.begin(b"")
    assert started.take(line) == MALFORMED


def test_a_star_cancels() -> None:
    started = exchange("PLAIN")
    started.begin(b"")
    assert started.take(b"*") == Failure(Cause.CANCELLED)


def test_a_challenge_as_a_line() -> None:
    assert challenge_line(Challenge(b"Username:")) == b"334 VXNlcm5hbWU6\r\n"
    assert challenge_line(Challenge(b"")) == b"334 \r\n"


def test_no_step_shows_a_password() -> None:
    assert "tanstaaf" not in repr(take("PLAIN", TIM))


@pytest.mark.parametrize("name", MECHANISMS)
@given(lines=st.lists(st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(b64encode)), max_size=4))
def test_random_lines_log_nobody_in(name: str, lines: list[bytes]) -> None:
    started = exchange(name)
    step = started.begin(b"")
    for line in lines:
        if not isinstance(step, Challenge):
            break
        step = started.take(line)
        assert not isinstance(step, Success)
