"""SCRAM-SHA-256 and -PLUS by RFC 5802 and RFC 7677."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.submit.auth.scram import Scram
from mqcd.submit.auth.steps import MALFORMED, Cause, Challenge, Context, Failure, Step, Success
from tests.fakes.sasl import ScramClient
from tests.unit.submit.auth.support import SERVER_NONCE, context

PLUS = "p=tls-server-end-point"
BINDINGS = {"tls-server-end-point": b"hash", "tls-exporter": b"exported"}
FINAL = "c=biws,r=rOprNGfwEbeRWgbNEkqO" + SERVER_NONCE
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def log_in(client: ScramClient, given: Context, *, plus: bool = False) -> Step:
    server = Scram(given, plus=plus)
    step = server.step(client.first())
    if isinstance(step, Challenge):
        step = server.step(client.final(step.octets))
    if isinstance(step, Challenge):
        assert client.trusts(step.octets)
        step = server.step(b"")
    return step


def test_the_vector_of_rfc_7677() -> None:
    server = Scram(context(), plus=False)
    assert server.begin() == Challenge(b"")
    first = server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == Challenge(
        f"r=rOprNGfwEbeRWgbNEkqO{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    )
    final = server.step(f"{FINAL},p={PROOF}".encode())
    assert final == Challenge(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert server.step(b"") == Success("user")


def test_octets_behind_our_signature_fail() -> None:
    server = Scram(context(), plus=False)
    server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    server.step(f"{FINAL},p={PROOF}".encode())
    assert server.step(b"x") == MALFORMED


@pytest.mark.parametrize("kind", BINDINGS)
def test_a_binding_that_fits_logs_in(kind: str) -> None:
    client = ScramClient("user", "pencil", flag=f"p={kind}", binding=BINDINGS[kind])
    assert log_in(client, context(bindings=BINDINGS, plus_offered=True), plus=True) == Success("user")


@pytest.mark.parametrize(
    ("flag", "theirs", "ours", "plus"),
    [
        (PLUS, b"other", b"hash", True),
        (PLUS, b"", b"hash", True),
        ("p=tls-unique", b"hash", b"hash", True),
        ("p=tls-exporter", b"hash", b"hash", True),
        ("n", b"", b"hash", True),
        ("y", b"", b"hash", True),
        (PLUS, b"hash", b"hash", False),
        (PLUS, b"", b"", True),
        ("y", b"", b"hash", False),
    ],
)
def test_a_binding_that_does_not_fit_fails(flag: str, theirs: bytes, ours: bytes, plus: bool) -> None:
    client = ScramClient("user", "pencil", flag=flag, binding=theirs)
    step = log_in(
        client,
        context(bindings={"tls-server-end-point": ours} if ours else {}, plus_offered=bool(ours)),
        plus=plus,
    )
    assert step == Failure(Cause.CREDENTIALS, "user")


def test_a_client_that_could_bind_goes_on_where_it_cannot() -> None:
    assert log_in(ScramClient("user", "pencil", flag="y"), context()) == Success("user")


@pytest.mark.parametrize(("user", "password"), [("user", "pencils"), ("nobody", "pencil"), ("tim", "pencil")])
def test_a_wrong_user_or_password_fails(user: str, password: str) -> None:
    assert log_in(ScramClient(user, password), context()) == Failure(Cause.CREDENTIALS, user)


def test_unknown_users_have_a_salt_that_stays() -> None:
    first = b"n,,n=nobody,r=abc"
    assert Scram(context(), plus=False).step(first) == Scram(context(), plus=False).step(first)


def test_a_name_with_comma_and_equals_sign() -> None:
    assert log_in(ScramClient("a,b=c", "comma"), context()) == Success("a,b=c")


def test_only_the_own_identity_may_be_acted_as() -> None:
    assert log_in(ScramClient("user", "pencil", identity="user"), context()) == Success("user")
    other = log_in(ScramClient("user", "pencil", identity="tim"), context())
    assert other == Failure(Cause.CREDENTIALS, "user")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=a b",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=\xff,r=abc",
        b"x,,n=user,r=abc",
        b"n,,n=user,r=" + b"a" * 513,
        b"n,,n=us\0er,r=abc",
    ],
)
def test_a_malformed_first_message_fails(first: bytes) -> None:
    assert Scram(context(), plus=False).step(first) == MALFORMED


@pytest.mark.parametrize(
    ("final", "cause"),
    [
        (f"{FINAL},p=dHzbZapWIk4jUhN", Cause.MALFORMED),
        (f"{FINAL},p=", Cause.MALFORMED),
        (f"{FINAL}", Cause.MALFORMED),
        (f"c=!!!!,r=rOprNGfwEbeRWgbNEkqO{SERVER_NONCE},p={PROOF}", Cause.MALFORMED),
        (f"{FINAL}x,p={PROOF}", Cause.CREDENTIALS),
        (f"{FINAL.removesuffix('0')},p={PROOF}", Cause.CREDENTIALS),
        (f"c=eSws,r=rOprNGfwEbeRWgbNEkqO{SERVER_NONCE},p={PROOF}", Cause.CREDENTIALS),
        (f"{FINAL},p=AAAA", Cause.CREDENTIALS),
    ],
)
def test_a_wrong_nonce_header_or_proof_fails(final: str, cause: Cause) -> None:
    server = Scram(context(), plus=False)
    server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    step = server.step(final.encode())
    assert isinstance(step, Failure)
    assert step.cause is cause


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_random_messages_log_nobody_in(messages: list[bytes]) -> None:
    server = Scram(context(), plus=False)
    for message in messages:
        step = server.step(message)
        assert not isinstance(step, Success)
        if not isinstance(step, Challenge):
            break
