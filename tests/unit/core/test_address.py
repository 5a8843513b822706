"""Domains in the form in which they are compared."""

import pytest

from mqcd.core.address import check_address, normal_domain
from mqcd.core.errors import DecodeError


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("Example.COM.", "example.com"),
        ("Bücher.example", "xn--bcher-kva.example"),
        ("bücher。example", "xn--bcher-kva.example"),
        ("bu\u0308cher.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.EXAMPLE", "xn--bcher-kva.example"),
        ("ᏣᎳᎩ.example", "xn--f9dt7l.example"),
        ("ꮳꮃꭹ.example", "xn--f9dt7l.example"),
        ("☕.example", "xn--53h.example"),
        ("_dmarc.Bücher.example", "_dmarc.xn--bcher-kva.example"),
        # RFC 5894, 7.2: letters that IDNA 2003 made others of.
        ("straße.example", "xn--strae-oqa.example"),
        ("STRAẞE.example", "xn--strae-oqa.example"),
        ("strasse.example", "strasse.example"),
        ("βόλος.example", "xn--nxasmm1c.example"),
        ("ΒΌΛΟΣ.example", "xn--nxasmq6b.example"),
        ("\u0646\u0627\u0645\u0647\u200c\u0627\u06cc.example", "xn--mgba3gch31f060k.example"),
    ],
)
def test_domains_are_compared_in_lower_case_as_a_labels(written: str, normal: str) -> None:
    assert normal_domain(written) == normal
    assert normal_domain(normal) == normal


@pytest.mark.parametrize("written", ["ü..example", "ü" * 80 + ".example", "ß" * 80 + ".example"])
def test_what_idna_refuses_is_only_lowered(written: str) -> None:
    assert normal_domain(written.upper().replace("SS", "ẞ")) == written


@pytest.mark.parametrize(
    "odd",
    ["\u202e", "\u00ad", "\u0080", "\u009f", "\u2028", "\u00a0", "\u200b", "\u2066", "\ufeff", "\ue000"],
)
@pytest.mark.parametrize("form", ["a{}b@example.com", '"a{}b"@example.com', "a@ex{}ample.com"])
def test_what_cannot_be_seen_is_in_no_address(odd: str, form: str) -> None:
    with pytest.raises(DecodeError):
        check_address(form.format(odd))


@pytest.mark.parametrize(
    "address",
    [
        "\u0646\u0627\u0645\u0647\u200c\u0627\u06cc@example.com",
        "a@\u0646\u0647\u200c\u0627.example",
        "ü\u0308@example.com",
    ],
)
def test_joiners_and_marks_are_letters(address: str) -> None:
    assert check_address(address) == address
