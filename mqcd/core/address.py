"""Mail addresses and domains as the envelope carries them (RFC 5321, 4.1.2; RFC 6531 for UTF-8).

An address is kept as text exactly as it was given; only its domain is normalised, and only where two
domains are compared. The null reverse-path is "". No address has what cannot be seen: controls (C1 too), what
turns the direction of writing, a soft hyphen, other spaces. The joiners that some scripts are written with
(RFC 5892, A.1) are letters.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache

from mqcd.core.errors import DecodeError

_MAX_LABEL = 63

_JOINERS = str.maketrans("", "", "\u200c\u200d")
_BLANKS = " \t"
"""White space on the wire; others are octets of a word (RFC 5321, 2.3.1)."""

MAX_LOCAL = 64
MAX_DOMAIN = 255
MAX_ADDRESS = MAX_LOCAL + 1 + MAX_DOMAIN
_ANY_DOMAIN = "a"
"""Completes a local part that is checked alone."""

# ASCII that each class leaves out, and so all of UTF-8 let in: written as ranges up to U+10FFFF, these
# patterns take 200 ms to compile, which every command line would wait for.
_ATEXT = r"""[^\x00-\x20"(),.:;<>@\[\\\]\x7f]"""
_LOCAL = rf'(?:{_ATEXT}+(?:\.{_ATEXT}+)*|"(?:[^\x00-\x1f"\\\x7f]|\\[\x20-\x7e])*")'
_ALNUM = r"[^\x00-/:-@\[-^`{-\x7f]"
_LABEL = rf"{_ALNUM}(?:[^\x00-,./:-@\[-^`{{-\x7f]*{_ALNUM})?"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*\.?|\[[^\[\]\\\s]+\])"
_ADDRESS = re.compile(rf"({_LOCAL})@({_DOMAIN})")
_ROUTE = re.compile(rf"@{_DOMAIN}(?:,@{_DOMAIN})*:")


def check_address(text: str) -> str:
    """`text` if it is one mail address (local-part@domain); raises DecodeError that says why not."""
    if len(text.encode()) > MAX_ADDRESS:
        raise DecodeError(f"mail address too long: {text[:80]!r}")
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise DecodeError(f"not a mail address: {text[:80]!r}")
    if not is_visible(text):
        raise DecodeError(f"mail address with characters that cannot be seen: {text[:80]!r}")
    local, domain = match.groups()
    if len(local.encode()) > MAX_LOCAL or len(domain.encode()) > MAX_DOMAIN:
        raise DecodeError(f"mail address too long: {text[:80]!r}")
    if domain.startswith("["):
        literal_ip(domain)
    return text


def is_visible(address: str) -> bool:
    """Whether an address consists of what can be seen, and of joiners."""
    return address.isprintable() or address.translate(_JOINERS).isprintable()


def parse_path(text: str, *, bare: bool = False) -> tuple[str, str]:
    """The path at the head of `text`, as MAIL and RCPT take it, and what follows it.

    Takes `<address>`, `<>`, `<postmaster>`, a source route (dropped, RFC 5321 4.1.1.3), and, because
    clients send it, an address without angle brackets. `bare`: also a local part alone. Raises DecodeError.
    """
    text = text.strip(_BLANKS)
    if not text.startswith("<"):
        head, _, rest = text.partition(" ")
        return check_path(head, bare), rest.strip(_BLANKS)
    end = _closing(text)
    inner, rest = text[1:end], text[end + 1 :]
    if rest and not rest.startswith(" "):
        raise DecodeError(f"no space after the path: {text[:80]!r}")
    route = _ROUTE.match(inner)
    if route is not None:
        inner = inner[route.end() :]
    if inner and inner.lower() != "postmaster":
        check_path(inner, bare)
    return inner, rest.strip(_BLANKS)


def check_path(path: str, bare: bool) -> str:
    """As `check_address`; `bare`: also a local part alone. Raises DecodeError."""
    check_address(f"{path}@{_ANY_DOMAIN}" if bare and "@" not in path else path)
    return path


def _closing(text: str) -> int:
    """Where the `>` stands that ends the path; a quoted local part may hold others."""
    if '"' not in text and (end := text.find(">")) >= 0:
        return end
    quoted = False
    skip = False
    for index, char in enumerate(text):
        if skip:
            skip = False
        elif quoted and char == "\\":
            skip = True
        elif char == '"':
            quoted = not quoted
        elif char == ">" and not quoted:
            return index
    raise DecodeError(f"path without its closing '>': {text[:80]!r}")


def split_address(address: str) -> tuple[str, str]:
    """Local part and domain, both as given; the domain is "" for "" and for a bare postmaster."""
    local, at, domain = address.rpartition("@")
    return (local, domain) if at else (address, "")


@lru_cache(maxsize=1024)
def domain_of(address: str) -> str:
    """The domain, in the form in which domains are compared: lower case, A-labels, no final dot."""
    return normal_domain(address[address.rfind("@") + 1 :]) if "@" in address else ""


def normal_domain(domain: str) -> str:
    """Lower case, A-labels (RFC 5890, UTS 46), no final dot. What is no domain is only lowered."""
    lowered = domain.lower().rstrip(".")
    if lowered.isascii():
        return lowered
    try:
        return ".".join(map(_a_label, _mapped(domain).rstrip(".").split(".")))
    except UnicodeError:
        return lowered


def _mapped(domain: str) -> str:
    """A domain mapped as UTS 46 says, not transitionally: two spellings of a name become one, and each
    letter of IDNA 2008 stays itself. Raises UnicodeError for what no domain has."""
    # Its tables take 10 ms to load, and few domains need them.
    from idna import uts46_remap

    return uts46_remap(domain, std3_rules=False, transitional=False)


def _a_label(label: str) -> str:
    """One label of a mapped domain. Raises UnicodeError."""
    if label.isascii():
        if not label:
            raise UnicodeError("empty label")
        return label
    encoded = "xn--" + label.encode("punycode").decode("ascii")
    if len(encoded) > _MAX_LABEL:
        raise UnicodeError("label too long")
    return encoded


def sent_by(wanted: Sequence[str], sender: str) -> bool:
    """Whether a reverse-path is one of these: an address, its domain, or <> for the null one."""
    if not sender:
        return "<>" in wanted
    local, domain = split_address(sender)
    domain = normal_domain(domain)
    for each in wanted:
        user, at, host = each.rpartition("@")
        # Local parts belong to their domain's owner, yet in a rule of ours case never separates two people.
        if normal_domain(host) == domain and (not at or user.lower() == local.lower()):
            return True
    return False


def fits_name(pattern: str, name: str) -> bool:
    """Whether a name is the one that a pattern says, or lies below the domain of `*.domain`."""
    wanted = normal_domain(pattern)
    if wanted == "*":
        return True
    return name.endswith(wanted[1:]) if wanted.startswith("*.") else name == wanted


def literal_ip(domain: str) -> str | None:
    """The IP address of an address literal such as `[192.0.2.1]` or `[IPv6:2001:db8::1]`.

    None when `domain` is no literal; DecodeError when it is one that says nothing (RFC 5321, 4.1.3).
    """
    if not domain.startswith("["):
        return None
    inner = domain[1:-1]
    if inner[:5].lower() == "ipv6:":
        inner = inner[5:]
    try:
        return str(ipaddress.ip_address(inner))
    except ValueError as error:
        raise DecodeError(f"not an address literal: {domain[:80]!r}") from error
