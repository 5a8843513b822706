"""What is read of certificates in DER."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError
from mqcd.core.smtp.x509 import dns_names, signature_algorithm
from tests.fakes.certificates import Authority


def der(path: Path) -> bytes:
    text = path.read_text()
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERT") :])


@pytest.mark.needs("openssl")
def test_the_dns_names_among_others(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign("mx", "DNS:MX.test", "IP:192.0.2.1", "email:me@mx.test", "DNS:*.example.org")
    assert dns_names(der(signed)) == ("mx.test", "*.example.org")
    assert dns_names(der(authority.certificate)) == ()
    assert signature_algorithm(der(signed)) == "1.2.840.10045.4.3.2"


@given(st.binary(max_size=80))
@pytest.mark.parametrize("read", [dns_names, signature_algorithm])
def test_other_octets_are_no_certificate(read: type, octets: bytes) -> None:
    for beginning in (b"", b"\x30", b"\x30\x84", b"\x30\x82\xff\xff"):
        with pytest.raises(DecodeError):
            read(beginning + octets[:70])


@given(cut=st.integers(0, 400), change=st.integers(0, 400), to=st.integers(0, 255))
def test_damaged_certificates_raise_nothing_else(cut: int, change: int, to: int) -> None:
    octets = bytearray(_EXAMPLE)
    octets[change % len(octets)] = to
    for read in (dns_names, signature_algorithm):
        try:
            read(bytes(octets))
        except DecodeError:
            continue
    if cut % len(octets):
        with pytest.raises(DecodeError):
            dns_names(_EXAMPLE[: cut % len(_EXAMPLE)])


def _of(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((tag, len(body))) + body


_EXAMPLE = _of(
    0x30,
    _of(
        0x30,
        _of(
            0xA3,
            _of(0x30, _of(0x30, bytes.fromhex("0603551d11"), _of(0x04, _of(0x30, _of(0x82, b"mx.test"))))),
        ),
    ),
    _of(0x30, bytes.fromhex("06082a8648ce3d040302")),
    b"\x03\x00",
)


def test_the_example_has_its_name() -> None:
    assert dns_names(_EXAMPLE) == ("mx.test",)
