"""The counts of `meters` once more, by listener, zone, destination site, reply and TLS.

An observer like `Meters`, and as close to the path of every recipient: a look-up or two and an addition for
each figure. The number of series is bounded for any mail: listeners and zones by the configuration and by
`MOST_NAMES`; sites by `Leaders`; replies by the words that `smtp.classes` has for them.

`Elders` has destinations with old mail that waits for its next attempt, as far as attempts show. Between
attempts mail rests on disk, and to ask the disk for each destination's oldest would be a scan. But waiting
mail was deferred before, and the oldest waits the longest: remembering for each destination the oldest
recipient that it put off costs one look per verdict and nothing else. So a shown age belongs to a recipient
that waits. An older one may exist that this process has not tried yet (after a start), or not since the
previous oldest ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from mqcd.core.model import Attempt, Bounced, Deferred, Delivered, Expired, Origin, Recipient
from mqcd.core.observing.null_observer import NullObserver
from mqcd.core.ports import Refusal
from mqcd.core.smtp.classes import class_of
from mqcd.core.smtp.reply import Reply
from mqcd.ops.metrics.leaders import OTHER, Leaders
from mqcd.ops.metrics.meters import QUEUED_MS, SECOND, Spread

SITES = 50
MOST_NAMES = 100
"""Listeners, zones: they are configured, but a reload may bring others and others again."""
MOST_REASONS = 200
"""Refusals by listener and reason."""
_KNOWN_REPLIES = 1000
"""Codes with their statuses whose place is remembered; servers may think of any number."""
NONE = "none"
"""Label of what came or went without TLS."""
NO_NAME = "-"
"""Label of mail that no listener took, or that no zone takes."""
SITE_MS = (50, 250, SECOND, 5 * SECOND, 30 * SECOND)
KIB = 1024
SIZES = (*(KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB), *(KIB << 10, KIB << 12, KIB << 14, KIB << 16))

DELIVERED, DEFERRED, BOUNCED, EXPIRED = "delivered", "deferred", "bounced", "expired"
VERDICTS = (DELIVERED, DEFERRED, BOUNCED, EXPIRED)

Figures = TypeVar("Figures")


class Named(dict[str, Figures], Generic[Figures]):
    """Figures by name, made when it first comes; of more than `MOST_NAMES` the further ones are "other"."""

    def __init__(self, make: type[Figures]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Figures:
        if len(self) >= MOST_NAMES and name != OTHER:
            return self[OTHER]
        made = self[name] = self._make()
        return made


class Listener:
    """Mail accepted by one listener."""

    __slots__ = ("messages", "recipients", "sizes")

    def __init__(self) -> None:
        self.messages = {NONE: 0}
        """By TLS version."""
        self.recipients = 0
        self.sizes = Spread(SIZES)
        """Octets of its messages."""


class Zone:
    """Mail sent by one zone; recipients."""

    __slots__ = ("by_tls", "queued", "verdicts")

    def __init__(self) -> None:
        self.verdicts = dict.fromkeys(VERDICTS, 0)
        self.by_tls = {NONE: 0}
        """Delivered, by TLS version."""
        self.queued = Spread(QUEUED_MS)
        """From acceptance to delivery."""


class Site:
    """Mail to one destination; recipients."""

    __slots__ = ("connections", "durations", "failed_connections", "verdicts")

    def __init__(self) -> None:
        self.verdicts = dict.fromkeys(VERDICTS, 0)
        self.durations = Spread(SITE_MS)
        """Of attempts."""
        self.connections = 0
        self.failed_connections = 0


class Breakdown(NullObserver):
    """`core.ports.Observer` that counts by label."""

    def __init__(
        self, sites: int = SITES, *, listeners: Iterable[str] = (), zones: Iterable[str] = ()
    ) -> None:
        """`sites`: destinations with figures of their own. The names are the configured ones.

        Their figures are 0 from the start: of a series that begins later Prometheus misses the first step.
        """
        self.listeners: Named[Listener] = Named(Listener)
        self.zones: Named[Zone] = Named(Zone)
        self.sites = Leaders(sites, Site)
        self.elders = Elders()
        self.refusals: dict[tuple[str, ...], int] = {}
        """By listener, reason and first digit of the reply's code."""
        self.replies: dict[tuple[str, ...], list[int]] = {}
        """By verdict, first digit of the code, and class; a list of one number."""
        self._known: dict[tuple[str, int, str], list[int]] = {}
        """The same lists, by verdict, code and enhanced status."""
        for listener in listeners:
            self.listeners[listener] = Listener()
        for zone in ("", *zones):
            self.zones[zone] = Zone()

    def accepted(self, at: int, recipients: Sequence[Recipient]) -> None:
        """Counts the message by its listener; reports came by none and count elsewhere."""
        first = recipients[0]
        envelope = first.envelope
        if envelope.origin is Origin.SMTP:
            listener = self.listeners[envelope.listener]
            tls = envelope.tls or NONE
            listener.messages[tls] = listener.messages.get(tls, 0) + 1
            listener.recipients += len(recipients)
            listener.sizes.add(first.size)

    def delivered(self, at: int, recipient: Recipient, verdict: Delivered) -> None:
        attempt = verdict.attempt
        zone = self._count(DELIVERED, at, attempt, verdict.reply)
        zone.queued.add(at - recipient.envelope.received)
        tls = attempt.tls or NONE
        zone.by_tls[tls] = zone.by_tls.get(tls, 0) + 1
        if recipient.attempts:
            self.elders.ended(attempt.destination, recipient.key)

    def deferred(self, at: int, recipient: Recipient, verdict: Deferred) -> None:
        attempt = verdict.attempt
        self._count(DEFERRED, at, attempt, verdict.reply)
        self.elders.put_off(attempt.destination, recipient.key, recipient.envelope.received, verdict.due)

    def bounced(self, at: int, recipient: Recipient, verdict: Bounced) -> None:
        self._count(BOUNCED, at, verdict.attempt, verdict.reply)
        self.elders.ended(verdict.attempt.destination, recipient.key)

    def expired(self, at: int, recipient: Recipient, verdict: Expired) -> None:
        self._count(EXPIRED, at, verdict.attempt, verdict.reply)
        self.elders.ended(verdict.attempt.destination, recipient.key)

    def refused(self, at: int, refusal: Refusal) -> None:
        key: tuple[str, ...] = (refusal.listener or NO_NAME, refusal.reason, f"{refusal.reply.code // 100}xx")
        if key not in self.refusals and len(self.refusals) >= MOST_REASONS:
            key = (OTHER, OTHER, key[2])
        self.refusals[key] = self.refusals.get(key, 0) + 1

    def connected(self, at: int, attempt: Attempt) -> None:
        self.sites.of(attempt.destination, at).connections += 1

    def connect_failed(self, at: int, attempt: Attempt, reason: str) -> None:
        self.sites.of(attempt.destination, at).failed_connections += 1

    def _count(self, verdict: str, at: int, attempt: Attempt, reply: Reply) -> Zone:
        site = self.sites.of(attempt.destination, at)
        site.verdicts[verdict] += 1
        site.durations.add(attempt.attempt_ms)
        zone = self.zones[attempt.zone]
        zone.verdicts[verdict] += 1
        known = self._known.get((verdict, reply.code, reply.status))
        if known is None:
            known = self._place(verdict, reply)
        known[0] += 1
        return zone

    def _place(self, verdict: str, reply: Reply) -> list[int]:
        key = verdict, f"{reply.code // 100}xx", class_of(reply.code, reply.status).value
        place = self.replies.setdefault(key, [0])
        if len(self._known) >= _KNOWN_REPLIES:
            self._known.clear()
        self._known[verdict, reply.code, reply.status] = place
        return place


MOST = 1000
"""Destinations that are remembered; of more, those whose mail is oldest."""
SLACK_MS = 24 * 3_600_000
"""Time after its due time for which a recipient is still believed to wait, for room or for its destination.
It is bounded, because the recipient may have ended unobserved by another route."""

Key = tuple[int, int]
"""(SPID, QID)."""


class _Elder(NamedTuple):
    received: int
    key: Key
    until: int


class Elders:
    """The oldest recipient put off by each destination. Times are wall time, ms."""

    def __init__(self) -> None:
        self._known: dict[str, _Elder] = {}

    def put_off(self, destination: str, key: Key, received: int, due: int) -> None:
        """A recipient waits for another attempt at `due`."""
        known = self._known.get(destination)
        if known is not None and known.received < received:
            return
        self._known[destination] = _Elder(received, key, due + SLACK_MS)
        if len(self._known) > 2 * MOST:
            # By halves, so that sorting costs little per verdict.
            oldest = sorted(self._known.items(), key=lambda item: item[1].received)
            self._known = dict(oldest[:MOST])

    def ended(self, destination: str, key: Key) -> None:
        """A recipient has been delivered or has failed."""
        known = self._known.get(destination)
        if known is not None and known.key == key:
            del self._known[destination]

    def oldest(self, now: int) -> Mapping[str, int]:
        """By destination, when the oldest recipient that is known to wait was accepted."""
        self._known = {name: each for name, each in self._known.items() if each.until > now}
        return {name: each.received for name, each in self._known.items()}
