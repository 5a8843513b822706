"""Addresses become hashes, and replies no longer tell them."""

from __future__ import annotations

import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.eventlog.pseudonyms import Pseudonyms
from tests.unit.queue.support import addresses

KEY = b"0123456789abcdef"
NAMES = Pseudonyms(KEY)
HASH = re.compile("[0-9a-f]{32}")
BOB, ANN = "Bob.Smith@example.org", "ann@example.com"
BOBS, ANNS = NAMES.address(BOB), NAMES.address(ANN)


def test_the_hash_is_what_any_tool_computes() -> None:
    assert hmac.new(KEY, b"ann@example.com", hashlib.sha256).hexdigest()[:32] == ANNS


def test_domains_are_compared_folded_local_parts_exactly() -> None:
    assert NAMES.address("ann@Example.COM.") == ANNS
    assert NAMES.address("ann@bücher.example") == NAMES.address("ann@xn--bcher-kva.example")
    assert NAMES.address("Ann@example.com") != ANNS


def test_the_null_sender_stays_null_under_any_key() -> None:
    assert NAMES.address("") == ""
    assert Pseudonyms(KEY + b"!").address(ANN) != ANNS


def test_the_key_is_not_shown() -> None:
    assert KEY.decode() not in repr(NAMES)


@given(addresses)
def test_every_address_has_one(address: str) -> None:
    assert HASH.fullmatch(NAMES.address(address))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<bob.smith@example.org>: no such user", f"<{BOBS}>: no such user"),
        ("Bob.Smith@example.org... User unknown", f"{BOBS}... User unknown"),
        ("RCPT TO:<BOB.SMITH@EXAMPLE.ORG> failed.", f"RCPT TO:<{BOBS}> failed."),
        ("no mailbox bob.smith here", f"no mailbox {BOBS} here"),
        ("user=bob.smith.", f"user={BOBS}."),
        (
            "see https://x.example/?to=bob.smith%40example.org",
            f"see https://x.example/?to={BOBS}%40example.org",
        ),
        ("sender ann@example.com rejected", f"sender {ANNS} rejected"),
        ("queued as 4ABC", "queued as 4ABC"),
        ("nothing for joann here", "nothing for joann here"),
        ("forwarded to 'x@y.example'.", f"forwarded to '{NAMES.address('x@y.example')}'."),
        ("loop at x@[192.0.2.1]", f"loop at {NAMES.address('x@[192.0.2.1]')}"),
        ('"a b"@y.example is full', f"{NAMES.address(chr(34) + 'a b' + chr(34) + '@y.example')} is full"),
        ("jimann@example.com", NAMES.address("jimann@example.com")),
    ],
)
def test_a_reply_names_nobody(reply: str, expected: str) -> None:
    assert NAMES.text(reply, ANN, BOB) == expected


@given(st.text(max_size=20), addresses, st.text(max_size=20))
def test_an_address_never_stays(before: str, address: str, after: str) -> None:
    told = NAMES.text(f"{before} <{address}> {after}", address)
    assert address.lower() not in told.lower() or address.lower() in f"{before} {after}".lower()


def test_a_single_letter_is_a_word_of_the_peers_own() -> None:
    assert NAMES.text("not a user", "a@example.org") == "not a user"


def test_a_quoted_local_part_is_found_without_its_quotes() -> None:
    address = '"John Smith"@example.org'
    assert NAMES.text("no John Smith here", address) == f"no {NAMES.address(address)} here"
