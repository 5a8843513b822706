"""The fields that a condition (`where`) may name: where each value stands, and how it is compared. Pure.

A value is read by paths of attributes from a `Recipient`. Other forms of a record are read by the same
paths, see `where.Where.on`; a new field is one line of `FIELDS` if its path is in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from mqcd.core.address import domain_of, normal_domain
from mqcd.core.errors import DecodeError
from mqcd.core.events import site_of
from mqcd.core.labels import HOLD, LIST_ID, MESSAGE_ID, TAG, TENANT, value_of
from mqcd.core.model import Area
from mqcd.core.queueing.spid import parse_spid
from mqcd.core.selecting.pattern import matcher
from mqcd.core.smtp.classes import OutcomeClass, class_of
from mqcd.core.units import duration_of, size_of
from mqcd.core.value import value

IN = "in"
_TEXTS = ("=", "!=", "~", IN)
_NUMBERS = ("=", "!=", "<", ">", IN)
_WORDS = ("=", "!=", IN)
_TIMES = ("<", ">")

Test = Callable[[Any], bool]
"""Whether a field's value is one that is meant."""


@value
class Kind:
    """What a field's values are."""

    expected: str
    """Finishes the sentence "expected ..."."""
    ops: tuple[str, ...]
    read: Callable[[str], Any]
    """The value that a text means. None or a DecodeError: it means none."""
    pattern: Callable[[str], str] = str.lower
    """The same for a text behind `~`."""
    among: Callable[[frozenset[Any]], Test] = lambda values: values.__contains__


@value(kw_only=False)
class Field:
    """A field that records have."""

    kind: Kind
    paths: tuple[str, ...]
    """Attributes of a `Recipient`."""
    made: Callable[[int], Callable[..., Any]] | None = None
    """With the time now, ms, a function that makes the value of what stands at the paths."""


def test_of(kind: Kind, op: str, values: tuple[Any, ...]) -> Test:
    """A comparison with values that `Kind.read` gave; only `in` has several."""
    if op == IN:
        return kind.among(frozenset(values))
    return _OPS[op](kind, values[0])


def _differs(kind: Kind, value: Any) -> Test:
    same = kind.among(frozenset((value,)))
    return lambda each: not same(each)


_OPS: Mapping[str, Callable[[Kind, Any], Test]] = {
    "=": lambda kind, value: kind.among(frozenset((value,))),
    "!=": _differs,
    "~": lambda _, value: matcher(value),
    "<": lambda _, value: lambda each: bool(each < value),
    ">": lambda _, value: lambda each: bool(each > value),
}


def _network(text: str) -> object:
    """A network, one address being one too; "" is mail that no client sent."""
    try:
        return ip_network(text, strict=False) if text else ""
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _in_networks(values: frozenset[Any]) -> Test:
    networks = values - {""}

    def among(text: str) -> bool:
        if not text:
            return "" in values
        address = _address(text)
        return address is not None and any(address in each for each in networks)

    return among


def _without_brackets(text: str) -> str:
    return text.removeprefix("<").removesuffix(">").lower()


def _tenant(labels: str, listener: str) -> str:
    """As `Envelope.tenant` has it."""
    return (value_of(labels, TENANT) or listener).lower()


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else None


def _words(enum: type[Area] | type[OutcomeClass]) -> Kind:
    words = [each.value for each in enum]
    return Kind(
        expected=f"one of {', '.join(words)}",
        ops=_WORDS,
        read=lambda text: text.lower() if text.lower() in words else None,
    )


def _reply(code: int, text: str) -> str:
    """The last reply as `queue ls --json` shows it."""
    return (f"{code} {text}".rstrip() if code else text).lower()


def _outcome(code: int, status: str) -> str:
    """The class of the last reply; "" before the first."""
    return class_of(code, status).value if code or status else ""


_TEXT = Kind(expected="a text", ops=_TEXTS, read=str.lower)
_SENDER = Kind(expected="an address", ops=_TEXTS, read=_without_brackets, pattern=_without_brackets)
_DOMAIN = Kind(expected="a domain", ops=_TEXTS, read=normal_domain, pattern=normal_domain)
_SPID = Kind(expected="a SPID (16 hex digits)", ops=_WORDS, read=parse_spid)
_TIME = Kind(expected="a time such as 2h or 1h30m", ops=_TIMES, read=duration_of)
_SIZE = Kind(expected="a size such as 64K", ops=_NUMBERS, read=size_of)
_COUNT = Kind(expected="a whole number", ops=_NUMBERS, read=_count)
_NAME = Kind(expected="a text", ops=_TEXTS, read=_without_brackets, pattern=_without_brackets)
_CLIENT = Kind(
    expected="an IP address, or a network such as 192.0.2.0/24",
    ops=_TEXTS,
    read=_network,
    among=_in_networks,
)


def site_name(destination: str) -> str:
    """What `site` compares: the site of a destination by the name that pages show, or the name of a relay."""
    return (site_of(destination) or destination).lower()


_SITE = Kind(expected="a destination", ops=_TEXTS, read=site_name, pattern=site_name)


def _text(path: str, kind: Kind = _TEXT) -> Field:
    return Field(kind, (path,), lambda _: str.lower)


def _labelled(name: str, kind: Kind) -> Field:
    return Field(kind, ("envelope.labels",), lambda _: lambda labels: value_of(labels, name).lower())


FIELDS: Mapping[str, Field | None] = {
    "spid": Field(_SPID, ("envelope.spid",)),
    "sender": _text("envelope.sender", _SENDER),
    "sender-domain": Field(_DOMAIN, ("envelope.sender",), lambda _: domain_of),
    "recipient": _text("address"),
    "domain": Field(_DOMAIN, ("address",), lambda _: domain_of),
    "site": None,
    "zone": None,
    "header-zone": _text("envelope.zone"),
    "route": _text("route"),
    "area": Field(_words(Area), ("area",)),
    "listener": _text("envelope.listener"),
    "user": _text("envelope.user"),
    "tenant": Field(_TEXT, ("envelope.labels", "envelope.listener"), lambda _: _tenant),
    "client": Field(_CLIENT, ("envelope.client",)),
    "age": Field(_TIME, ("envelope.received",), lambda now: lambda received: now - received),
    "due": Field(_TIME, ("due",), lambda now: lambda due: due - now),
    "attempts": Field(_COUNT, ("attempts",)),
    "code": Field(_COUNT, ("code",)),
    "status": _text("status"),
    "reply": Field(_TEXT, ("code", "reply"), lambda _: _reply),
    "class": Field(_words(OutcomeClass), ("code", "status"), lambda _: _outcome),
    "size": Field(_SIZE, ("size",)),
    "tag": _labelled(TAG, _TEXT),
    "hold": _labelled(HOLD, _TEXT),
    "message-id": _labelled(MESSAGE_ID, _NAME),
    "list-id": _labelled(LIST_ID, _NAME),
}
"""None: no record has it, see `LIVE`."""
LIVE: Mapping[str, Field] = {"site": _text("site", _SITE), "zone": _text("zone")}
"""What follows from the configuration and DNS. Conditions on it become conditions on records, see `live`;
those of rules on `site` are judged where mail is claimed."""


def read_value(kind: Kind, op: str, text: str) -> Any:
    """What a text means behind an operator. Raises DecodeError: what was expected."""
    try:
        value = kind.pattern(text) if op == "~" else kind.read(text)
    except DecodeError:
        value = None
    if value is None:
        raise DecodeError(kind.expected)
    return value
