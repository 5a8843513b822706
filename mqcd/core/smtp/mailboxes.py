"""The addresses in a header field such as To (RFC 5322, 3.4), as programs write it.

A comma too many, a semicolon between addresses and a comma in a comment are read. What cannot be read is an
error: no address is left out, none is invented. Pure.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Iterator
from typing import Any

from mqcd.core.address import check_path
from mqcd.core.errors import DecodeError

_MARK = re.compile(r'\\.|[",;()]', re.DOTALL)
"""What parts addresses, or keeps them together."""
_NOBODY = re.compile(r"(^|:)\s*$")
"""Stands where an address may be missing, or a group without members begins."""
_ASIDE = re.compile(r"\(.*\)|^[^<(]*:", re.DOTALL)
"""Comments, and the name of a group."""


def mailboxes(value: str, *, bare: bool = False) -> Iterator[str]:
    """The addresses in the value of a field, in order. `bare`: also a local part alone.

    Octets that are not UTF-8 are half characters (PEP 383). Raises DecodeError.
    """
    # For newer Pythons, which else make nothing of a whole field with one slip in it, and say nothing.
    lenient: dict[str, Any] = {"strict": False} if hasattr(email.utils, "supports_strict_parsing") else {}
    for part in _parts(value):
        try:
            found = {address for _, address in email.utils.getaddresses([part], **lenient) if address}
        except (RecursionError, ValueError, IndexError) as error:
            raise DecodeError(f"no list of addresses: {ascii(value)[:80]}") from error
        # Outlook lets an address in quotes of its own go before the address.
        found -= {f"'{address}'" for address in found}
        # Of `a@b.example <c@d.example>` it makes two, of which one is no address.
        if len(found) > 1 or not (found or _NOBODY.search(part)):
            raise DecodeError(f"no list of addresses: {ascii(value)[:80]}")
        for address in found:
            # Of `John Smith` it makes John.
            if "@" not in address and "<" not in part and len(_ASIDE.sub("", part).split()) > 1:
                raise DecodeError(f"no list of addresses: {ascii(value)[:80]}")
            yield _checked(address, bare)


def _parts(value: str) -> Iterator[str]:
    """What commas and semicolons part, but for those in quotes and comments: an address each."""
    start = depth = 0
    quoted = False
    for mark in _MARK.finditer(value):
        match mark[0]:
            case '"' if not depth:
                quoted = not quoted
            case "(" if not quoted:
                depth += 1
            case ")" if not quoted:
                depth = max(0, depth - 1)
            case "," | ";" if not (quoted or depth):
                yield value[start : mark.start()]
                start = mark.end()
    yield value[start:]


def _checked(address: str, bare: bool) -> str:
    """Raises DecodeError."""
    try:
        address.encode()
    except UnicodeEncodeError as error:
        raise DecodeError(f"an address is not UTF-8: {ascii(address)[:80]}") from error
    return check_path(address, bare)
