"""Domains in the form in which they are compared."""

import pytest

from mqcd.core.address import normal_domain


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("Example.COM.", "example.com"),
        ("Bücher.example", "xn--bcher-kva.example"),
        ("bücher。example", "xn--bcher-kva.example"),
        ("bu\u0308cher.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.EXAMPLE", "xn--bcher-kva.example"),
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
