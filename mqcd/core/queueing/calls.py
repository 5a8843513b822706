"""Requests of clients for held mail: ETRN (RFC 1985) and ATRN (RFC 2645). Pure.

What is asked for is a node of ETRN, as text: a domain, `@domain` for it and all below it, or `#name` for what
the setting of that name holds. Who may ask: where a setting names users, these; else any client for ETRN,
nobody for ATRN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mqcd.core.address import normal_domain
from mqcd.core.errors import DecodeError
from mqcd.core.queueing.holding import HeldDomain, Holding, HoldMode

Wanted = Callable[[str], bool]
"""Whether the mail that rests for a domain is asked for."""
_NODE = re.compile(r"([@#]?)((?:\*\.)?[^\s@#*,<>]{1,255}|\*)")


def parse_node(argument: str) -> str:
    """The argument of ETRN in comparable form. Raises DecodeError."""
    match = _NODE.fullmatch(argument)
    if match is None or ("*" in match[2] and match[1] != "#"):
        raise DecodeError(f"not a node of ETRN: {argument[:80]!r}")
    return match[1] + normal_domain(match[2])


def parse_domains(argument: str) -> tuple[str, ...]:
    """The argument of ATRN: its domains in comparable form, none = all of the user's. Raises DecodeError."""
    if not argument:
        return ()
    domains = [each.strip() for each in argument.split(",")]
    for domain in domains:
        if not domain or domain[0] in "@#" or _NODE.fullmatch(domain) is None:
            raise DecodeError(f"not a list of domains: {argument[:80]!r}")
    return tuple(map(normal_domain, domains))


def started(holding: Holding, node: str, user: str) -> Wanted | None:
    """What a node of `parse_node` starts for a user ("" = a client without login); None: not allowed."""

    def allowed(held: HeldDomain | None) -> bool:
        if held is None or held.mode is not HoldMode.ETRN:
            return False
        return not held.users or user in held.users

    if node.startswith("#"):
        named = [held for held in holding.domains if held.name == node[1:] and allowed(held)]
        return (lambda domain: holding.of(domain) in named) if named else None
    domain = node.removeprefix("@")
    if domain == node:
        return domain.__eq__ if allowed(holding.of(domain)) else None
    below = f".{domain}"
    names = [held.name.removeprefix("*.") for held in holding.domains if allowed(held)]
    if not allowed(holding.of(domain)) and not any(name == domain or name.endswith(below) for name in names):
        return None
    return lambda each: (each == domain or each.endswith(below)) and allowed(holding.of(each))


def collected(holding: Holding, domains: Sequence[str], user: str) -> Wanted | None:
    """What a user collects who names these domains, none = all of their own; None: not allowed."""

    def owned(domain: str) -> bool:
        held = holding.of(domain)
        return held is not None and held.mode is HoldMode.ATRN and user in held.users

    if domains:
        return domains.__contains__ if all(map(owned, domains)) else None
    return (
        owned if any(held.mode is HoldMode.ATRN and user in held.users for held in holding.domains) else None
    )
