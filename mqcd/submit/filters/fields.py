"""Header fields of a message, removed and added without touching the rest of its octets. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

_LINE = re.compile(rb"[^\n]*\n|[^\n]+\Z")
_NAME = re.compile(r"[!-9;-~]{1,76}", re.ASCII)
_MAX_LINE = 998
"""Octets of a line (RFC 5322, 2.1.1)."""


def check_name(name: str) -> str:
    """The name of a header field (RFC 5322, 2.2). Raises ValueError."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name[:80]!r} is no name of a header field")
    return name


def field(name: str, value: str) -> bytes:
    """A header field; line ends in the value become folds. Raises ValueError for what is no name."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", value)]
    kept = ["".join(char for char in line if char == "\t" or char >= " ") for line in lines if line]
    text = "\r\n\t".join(line.encode()[: _MAX_LINE - 100].decode("utf-8", "ignore") for line in kept)
    return f"{check_name(name)}: {text}\r\n".encode()


def without(content: bytes, drop: Callable[[str], bool]) -> bytes:
    """The message without the fields whose name, in lower case, `drop` says."""
    kept: list[bytes] = []
    at, dropping = 0, False
    for line in _LINE.finditer(content):
        text = line[0]
        if not text.strip(b"\r\n"):
            break
        if text[:1] not in (b" ", b"\t"):
            name, colon, _ = text.partition(b":")
            if not colon:
                break
            dropping = drop(name.strip(b" \t").decode("latin-1").lower())
        if not dropping:
            kept.append(text)
        at = line.end()
    return b"".join(kept) + content[at:]
