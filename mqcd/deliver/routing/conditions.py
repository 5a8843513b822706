"""What settings say of mail, as conditions on records: delivery and selections go by the same ones. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from mqcd.core.address import normal_domain
from mqcd.core.model import Envelope
from mqcd.core.selecting.live import is_hop
from mqcd.core.selecting.where import Compare, Node, Predicate, Where, all_of, any_of
from mqcd.core.selecting.where_fields import IN

_SPECIAL = "*?["


class Mail(NamedTuple):
    """A recipient before its attempt."""

    envelope: Envelope
    domain: str
    """In comparable form; the next hop in the place of it, if an operator chose one."""


def tested(node: Node) -> Predicate[Mail]:
    """A condition on records, for delivery."""
    return Where(node, 0).on(_read)


def _read(path: str) -> Callable[[Mail], Any]:
    if path == "address":
        return lambda mail: f"@{mail.domain}"
    if path == "route":
        return lambda mail: mail.domain if is_hop(mail.domain) else ""
    get = attrgetter(path.removeprefix("envelope."))
    return lambda mail: get(mail.envelope)


def among(field: str, values: Iterable[object]) -> list[Node]:
    """That a field has one of these values; nothing where none are given."""
    texts = tuple(map(str, values))
    return [Compare(field, IN, texts)] if texts else []


def sent_by(wanted: Sequence[str]) -> list[Node]:
    """The same for the reverse-path: addresses, domains, and <> for the null one; see `address.sent_by`."""
    null = [Compare("sender", "=", ("",))] if "<>" in wanted else []
    domains = among("sender-domain", (normal_domain(each) for each in wanted if not _is_whole(each)))
    parts = [*null, *domains, *(_address(each) for each in wanted if "@" in each)]
    return [any_of(*parts)] if parts else []


def _is_whole(wanted: str) -> bool:
    return "@" in wanted or wanted == "<>"


def whole(wanted: Sequence[str]) -> list[str]:
    """The ones that name more than a domain."""
    return [each for each in wanted if _is_whole(each)]


def _address(wanted: str) -> Node:
    local, _, domain = wanted.rpartition("@")
    # The domain apart: it may be written in several ways, which a pattern would take for different ones.
    quoted = "".join(f"[{each}]" if each in _SPECIAL else each for each in local)
    at_domain = Compare("sender-domain", "=", (normal_domain(domain),))
    return all_of(at_domain, Compare("sender", "~", (f"{quoted}@*",)))
