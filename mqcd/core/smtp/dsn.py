"""The DSN parameters of a sender (RFC 3461), as envelopes keep them. Pure."""

from __future__ import annotations


def parameters(text: str) -> dict[str, str]:
    """The DSN parameters that were given with MAIL or RCPT (RFC 3461, 4), names in upper case."""
    pairs = (word.partition("=") for word in text.split())
    return {name.upper(): value for name, _, value in pairs}


def notify_of(text: str) -> set[str]:
    """On which events a recipient is to be reported on (RFC 3461, 4.1); on failure unless said otherwise."""
    return set(parameters(text).get("NOTIFY", "FAILURE").upper().split(","))
