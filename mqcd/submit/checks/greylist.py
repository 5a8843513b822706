"""Greylisting (RFC 6647): which deliveries have to come a second time, and what is remembered of them. Pure.

A triplet is the client's network (IPv4 /24, IPv6 /64), sender and recipient. One that is new is refused for
`delay`. When it comes again after that, and within `window` of its first time, it is known: it passes from
then on, until it has not come for `lifetime`.

Settings read: greylist.
"""

from __future__ import annotations

import hashlib

from mqcd.config.settings import PeerSettings
from mqcd.core.clients import client_network, wide_network
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.submit.checks.listed import NetworkList

_KEY_OCTETS = 16


@value
class Terms:
    """The times of one listener, in ms."""

    delay: int
    window: int
    lifetime: int


@value
class Entry:
    """What is remembered of a triplet; wall times in ms."""

    first: int
    """When it came first."""
    passed: int = 0
    """When it passed last; 0 = it has not."""


@value
class Triplet:
    """A delivery that may have to wait."""

    key: bytes
    """Names it, in few octets and without naming anybody."""
    terms: Terms


class GreylistRules:
    """Which deliveries are greylisted."""

    __slots__ = ("_allowed", "_on", "_terms")

    def __init__(self, settings: PeerSettings) -> None:
        self._on = settings.greylist
        self._allowed = NetworkList(settings.greylist_allow)
        self._terms = Terms(
            delay=settings.greylist_delay,
            window=settings.greylist_window,
            lifetime=settings.greylist_lifetime,
        )

    def triplet(self, client: str, sender: str, recipient: str) -> Triplet | None:
        """The triplet of a recipient; None = it passes."""
        if not self._on or not client or self._allowed.has(client):
            return None
        network = client_network(client) if ":" in client else wide_network(client)
        name = f"{network}\0{sender.lower()}\0{recipient.lower()}"
        return Triplet(
            key=hashlib.blake2b(name.encode(), digest_size=_KEY_OCTETS).digest(), terms=self._terms
        )


def judge(entry: Entry | None, terms: Terms, now: int) -> tuple[Entry, int]:
    """What to remember of a triplet that comes at `now`, and the ms that it has to wait; 0 = it passes."""
    if entry is None or _is_over(entry, terms, now):
        entry = Entry(first=now)
    waited = now - entry.first
    if not entry.passed and waited < terms.delay:
        return entry, terms.delay - waited
    return Entry(first=entry.first, passed=now), 0


def _is_over(entry: Entry, terms: Terms, now: int) -> bool:
    """Whether it is as if the triplet had never come, or the clock has gone back behind it."""
    if entry.passed:
        return now - entry.passed >= terms.lifetime
    return not 0 <= now - entry.first < terms.window


def try_again(wait: int) -> Reply:
    """The reply to a recipient that has to come again in `wait` ms."""
    seconds = -(-wait // 1000)
    return Reply(code=451, status="4.7.1", text=f"Greylisted, try again in {seconds} s")
