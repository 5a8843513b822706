"""tls-server-end-point by RFC 5929."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError
from mqcd.submit.auth.binding import server_end_point
from tests.fakes.certificates import Authority


def test_the_hash_is_that_of_the_signature(tmp_path: Path) -> None:
    text = Authority(tmp_path).certificate.read_text()
    certificate = ssl.PEM_cert_to_DER_cert(text)
    # openssl's default for P-256 is ecdsa-with-SHA256.
    assert server_end_point(certificate) == hashlib.sha256(certificate).digest()


def _sequence(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((0x30, len(body))) + body


@pytest.mark.parametrize(
    ("oid", "name"),
    [("2a864886f70d010105", "sha256"), ("2a864886f70d01010c", "sha384"), ("2a8648ce3d040304", "sha512")],
)
def test_md5_and_sha1_become_sha256(oid: str, name: str) -> None:
    octets = bytes.fromhex(oid)
    certificate = _sequence(_sequence(), _sequence(bytes((6, len(octets))) + octets), b"\x03\x00")
    assert server_end_point(certificate) == hashlib.new(name, certificate).digest()


def test_ed25519_has_no_binding() -> None:
    assert server_end_point(_sequence(_sequence(), _sequence(b"\x06\x03\x2b\x65\x70"))) == b""


@given(st.binary(max_size=80))
def test_other_octets_are_no_certificate(octets: bytes) -> None:
    with pytest.raises(DecodeError):
        server_end_point(b"\x30\x84" + octets)
