"""The ports of the server: what its parts expect of store, clock, DNS, network and observers.

Each port names its errors. Parts above the queue know it only through `QueueStore`, the daemon through
`daemon.storing.ServedStore`, which has more. Clock, store, resolver, network and observer have honest fakes
in tests/fakes; tests use the real `Tokens` and `UsedRates`, which need nothing outside the process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from mqcd.core.model import (
    Amended,
    Area,
    AreaStats,
    Attempt,
    Batch,
    Bounced,
    Deferred,
    Delivered,
    Expired,
    Recipient,
    Settlement,
    Submission,
)
from mqcd.core.queueing.turns import Places
from mqcd.core.selecting.parts import Listed
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value


class Clock(Protocol):
    """Time. Wall time may leap; timers follow the monotonic one."""

    def now(self) -> int:
        """Wall time, ms since the Unix epoch."""

    def monotonic(self) -> int:
        """Milliseconds that never go back; only differences mean something."""

    def micros(self) -> int:
        """Microseconds that never go back: for measuring what is shorter than a millisecond."""

    async def sleep(self, ms: int) -> None:
        """Return after `ms` milliseconds of monotonic time."""


class Content(Protocol):
    """An open handle on a message's octets; it stays readable when the store recycles files."""

    @property
    def size(self) -> int:
        """Octets in all."""

    async def read(self, octets: int) -> bytes:
        """The next octets, at most as many as asked; b"" at the end. Raises ContentUnavailable."""

    def close(self) -> None:
        """Release the octets. Closing twice is harmless."""


@value
class Picked:
    """Some of the recipients that a batch applies to."""

    recipients: Sequence[Recipient] = ()
    """Now in flight: the caller settles or parks them."""
    changed: int = 0
    """So many others the store has changed by itself; that is durable."""
    in_flight: Collection[tuple[int, int]] = ()
    """SPID and QID of selected ones that were in flight already, and so are passed over."""


class Reservation(Protocol):
    """A connection, or a place in line for one, reserved for one new message until that is durable."""

    @property
    def begins(self) -> bool:
        """Whether the connection is free, so that the attempt begins with the acceptance. If not, the mail is
        in flight like claimed mail, and its attempt begins later."""

    @property
    def destination(self) -> str:
        """Where it leads; see `QueueStore.begin`."""

    def use(self, content: bytes | None) -> None:
        """The message is durable: its recipients are in flight from now on.

        `content`: the message's octets, None = they are read from the store.
        """

    def release(self) -> None:
        """The message was not accepted."""


FindConnection = Callable[[Sequence[Recipient]], Reservation | None]
"""Reserves a connection, or a place in line, for all of these recipients at once; None without one."""


class MailTaker(Protocol):
    """What a door gives its mail to; see `QueueStore`."""

    def reserve(self, several: bool) -> int:
        """A SPID for a message with several recipients or one; one that is not used never appears."""

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        """Take responsibility for a message: durable on return. Gives its recipients.

        With a key that is remembered: gives those of its message, or raises Refused if that is another one.
        """


class QueueStore(MailTaker, Protocol):
    """A durable queue of recipients: `queue.store.ClusterStore` is one, so are those of `stores`; of a queue
    that is only read, `queue.read_only`. tests/contract holds all to this text.

    Every change is durable when the awaitable that makes it is done. What cannot be recorded raises
    StoreUnavailable and leaves the queue as it was. A claimed recipient is in flight: no other claim returns
    it until it is settled or parked. Calls come from one event loop.
    """

    async def open(self) -> None:
        """Open for mail, and recover what the last run left. Raises StoreBusy, StoreDamaged."""

    async def recovered(self) -> None:
        """Return when all of that is there: before, nothing is claimed and `stats` do not know it yet. Raises
        StoreUnavailable when it cannot be read."""

    async def close(self) -> None:
        """Make everything durable and release it. Claimed recipients stay claimed only until the next
        open."""

    async def claim(
        self,
        room: int,
        now: int,
        skip: Mapping[str, int] | None = None,
        overdue: Callable[[Recipient], bool] | None = None,
        received_by: int | None = None,
        places: Places | None = None,
    ) -> Sequence[Recipient]:
        """At most `room` recipients that are due at `now`, now in flight: incoming, deferred, and held ones
        at their end; with `places` further ones of new mail.

        New and due mail alternate, each oldest first; new mail of tenants takes turns, as far as the store
        knows whose it has at hand. `skip` maps each suspended recipient domain to the end of its suspension,
        and may change during the claim: its recipients are passed over until then, except `overdue` ones that
        were passed over before. Nothing that was accepted after `received_by` (ms; no limit if it is None) is
        overdue, so a store need not ask about each of them. May return fewer than are due, and nothing while
        the store moves records about or cannot record verdicts: then `watch` calls back when to ask again.

        After a start, or a leap of the wall clock, no due time lies further ahead than the longest delay
        of the schedule, also if the clock was wrong when it was set.
        """

    async def claim_bounces(self, room: int) -> Sequence[Recipient]:
        """At most `room` recipients of area bounces, now in flight."""

    async def claim_removed(self, room: int) -> Sequence[Recipient]:
        """At most `room` recipients of area removed whose grace is over, now in flight."""

    async def claim_held(self, domain: str, room: int) -> Sequence[Recipient]:
        """At most `room` recipients that rest for their domain (`core.queueing.holding`), now in flight;
        parked without a time they rest again. `claim` gives out each at its due time."""

    def held_domains(self) -> Collection[str]:
        """The domains for which recipients rest that are not in flight. While the store moves records about
        it may name one of which `claim_held` gives nothing yet."""

    def pick(self, selection: Selection, batch: Batch) -> AsyncGenerator[Picked, None]:
        """The recipients that match and that the batch applies to, some at a time.

        A part's `recipients` are in flight, and are settled or parked before the next part is asked for.
        Those that it counts as `changed` were never in flight: the store has changed them itself. What is
        accepted meanwhile is not part of it. A store that moves records about may miss one that it moves
        again and again during the pick, and one pick wait for another one's end. What it cannot read is left
        out, and logged. Raises StoreUnavailable.
        """

    def begin(self, recipients: Sequence[Recipient], destination: str) -> Awaitable[None]:
        """Note that an attempt starts. To be awaited before the final dot is sent."""

    def settle(
        self, settlements: Sequence[Settlement], submissions: Sequence[Submission] = ()
    ) -> Awaitable[None]:
        """Record verdicts of claimed recipients and the messages that they give rise to.

        Each verdict is recorded as a whole, and the messages together. A store may record a call that is too
        large for one write in several, the messages with the first: if it fails between them, or a crash
        comes, the other recipients are as before the call, and reported once more. A due time further ahead
        than the schedule's longest delay becomes that, here and in `park`.
        """

    def park(self, recipients: Sequence[Recipient], until: int) -> Awaitable[None]:
        """Give claimed recipients back untried, due at `until` (0 = at once); counts no attempt."""

    async def content(self, recipient: Recipient) -> Content:
        """The message's octets. Raises ContentUnavailable when they cannot be had now."""

    def scan(self, selection: Selection) -> AsyncIterator[Recipient]:
        """The recipients that match, of one consistent moment, streamed. Raises StoreUnavailable, as do the
        looks that follow."""

    async def browse(self, selection: Selection, after: str = "", by_age: bool = False) -> Listed:
        """A part of what `scan` gives: `selection.limit` recipients (a store may have a lower limit) from
        where an earlier part ended; "" is the beginning.

        By age the oldest come first, and what stays in the queue comes exactly once. In the store's own
        order a part is quick; what moves meanwhile may come twice, or not. Raises DecodeError for an `after`
        that no part gave.
        """

    async def measure(self, selection: Selection) -> AreaStats:
        """How much is selected. Costs a scan, but not the loop's time."""

    async def lane_keys(self, selection: Selection) -> Collection[str]:
        """The `lane_key` of each that is selected. Costs as much."""

    def in_flight(self, recipient: Recipient) -> bool:
        """Whether it is claimed at this moment."""

    def stats(self) -> Mapping[Area, AreaStats]:
        """What each area holds, without a scan. All areas are present."""

    def next_due(self) -> int | None:
        """When `claim` gives the next recipient, ms (0 = now); None when none waits.

        Bounces and removals have claims of their own, and do not count.
        """

    def may_expire(self) -> bool:
        """Whether mail may expire; not while the wall clock is in doubt (see `core.clockwatch`)."""

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever something may have become claimable: new mail, a bounce, a park."""

    def hand_over(self, find: FindConnection) -> None:
        """Ask `find` for a connection before a new message is written, where no other new mail waits: it is
        in flight, and may have begun, as soon as it is durable. A store need not ask."""


class Notifier(Protocol):
    """Makes the reports on success and delay, which are recorded with the verdicts that they report."""

    async def delivered(self, settlements: Sequence[Settlement], final: bool) -> Sequence[Submission]:
        """The reports on recipients of one message with verdict Delivered; none if none were requested.

        `final`: the next hop keeps their mailboxes; else it is one that does not report what becomes of them.
        """

    async def delayed(self, settlements: Sequence[Settlement]) -> Sequence[Submission]:
        """The reports on recipients of one message with verdict Deferred that has a `warning`."""


@value
class MxHost:
    """One mail exchanger (RFC 5321, 5.1)."""

    preference: int
    host: str


class Resolver(Protocol):
    """DNS. Raises NameNotFound (certain, permanent) and ResolveFailed (temporary)."""

    async def mx(self, domain: str) -> Sequence[MxHost]:
        """The MX records, sorted by preference; empty when the domain has none but may have addresses.

        A null MX (RFC 7505) is one entry with host "".
        """

    async def addresses(self, host: str) -> Sequence[str]:
        """IPv6 and IPv4 addresses of a host, in the order to try them; never empty."""

    async def names(self, address: str) -> Sequence[str]:
        """The host names of an IP address, as its owner has them (PTR); never empty."""


@value
class TlsTerms:
    """What we ask of a TLS connection, and what we show."""

    verify: bool = False
    """The peer's certificate must be good and name the host (RFC 6125)."""
    trust: str = ""
    """File of the certificates that it is checked by (PEM); "" = the system's."""
    certificate: str = ""
    """File of our own certificate (PEM); "" = none is shown."""
    key: str = ""
    """File of its key; "" = it stands with the certificate."""


class Connection(Protocol):
    """An open stream to a next hop. Raises ConnectFailed when it breaks."""

    @property
    def remote_addr(self) -> str:
        """The peer's IP address."""

    @property
    def source_addr(self) -> str:
        """Our own IP address on it."""

    @property
    def tls(self) -> str:
        """TLS version in use, such as "TLSv1.3"; "" without."""

    @property
    def quiet(self) -> bool:
        """Whether no unread octets have arrived and the peer has not closed."""

    def write(self, data: bytes) -> None:
        """Send octets, buffered."""

    async def drain(self) -> None:
        """Wait until the buffer is small enough to write more. Raises ConnectFailed."""

    async def read(self) -> bytes:
        """The next octets, b"" when the peer has closed. Raises ConnectFailed."""

    async def start_tls(self, hostname: str, terms: TlsTerms) -> None:
        """Turn to TLS; raises ConnectFailed when the handshake fails, or the name does not verify, for our
        own files TlsFilesUnusable, for this machine's fault LocalShortage."""

    def close(self) -> None:
        """Close at once."""


class Tokens(Protocol):
    """Connections that the processes of several shards may have together: of clients, or to destinations."""

    processes: int
    """How many there are."""

    def take(self, name: str, most: int) -> int | None:
        """One of `most` tokens of this name; None while all are taken."""

    def give(self, token: int, *, at_once: bool = False) -> None:
        """Give a token back; `at_once`: this process may take it again at once."""


class UsedRates(Protocol):
    """What the processes of several shards have used of rates that they share; times are monotonic ns."""

    def ahead(self, name: str, now: int) -> int:
        """How long it takes until all that was used of a rate is regained."""

    def use(self, name: str, ns: int, now: int) -> None:
        """Use as much as is regained in `ns`."""

    def give_back(self, name: str, ns: int) -> None:
        """Undo such a use, as far as it still counts."""


class Dialer(Protocol):
    """Opens connections. Raises ConnectFailed, SourceUnavailable where our own address is at fault and
    LocalShortage where this machine has no room for one more; time limits are set by the caller."""

    async def dial(self, address: str, port: int, source: str) -> Connection:
        """Connect to an IP address, from `source` ("" = the system's choice)."""

    def is_own(self, address: str) -> bool:
        """Whether an IP address is one of this machine's."""


@value
class Refusal:
    """Something refused at the door."""

    reason: str
    """A short fixed word for metrics, such as "relay", "size", "recipients", "store", "syntax"."""
    reply: Reply
    listener: str = ""
    client: str = ""
    sender: str = ""
    recipient: str = ""
    session: str = ""
    """Names the session in the log."""
    command: str = ""
    """The word that was no command, cut and printable; "" for other refusals."""
    user: str = ""
    """Who has logged in, or is a user and could not; never a name that is no user's: it may be a password."""


class Observer(Protocol):
    """Receives each business event once, after it is durable. Must not raise and must be quick.

    `at` is the time of the transition, ms. The store reports the queue's transitions, the door
    refusals, delivery its connections. One that needs only some derives from
    `core.observing.null_observer.NullObserver`.
    """

    def accepted(self, at: int, recipients: Sequence[Recipient]) -> None:
        """A message is in the queue."""

    def attempted(self, at: int, recipients: Sequence[Recipient], destination: str) -> None:
        """An attempt has begun for them."""

    def delivered(self, at: int, recipient: Recipient, verdict: Delivered) -> None:
        """The next hop has it."""

    def deferred(self, at: int, recipient: Recipient, verdict: Deferred) -> None:
        """An attempt failed; it will be tried again."""

    def bounced(self, at: int, recipient: Recipient, verdict: Bounced) -> None:
        """Refused for good."""

    def expired(self, at: int, recipient: Recipient, verdict: Expired) -> None:
        """Given up for its age."""

    def reported(self, at: int, recipient: Recipient, report_spid: int) -> None:
        """Its report is in the queue."""

    def discarded(self, at: int, recipient: Recipient, reason: str) -> None:
        """It failed without a report, by setting."""

    def amended(self, at: int, recipient: Recipient, verdict: Amended) -> None:
        """An operator's batch has changed it; `recipient` is as it was before."""

    def purged(self, at: int, recipient: Recipient) -> None:
        """The grace of its removal is over: it can no longer be restored."""

    def outcome_unknown(self, at: int, recipient: Recipient) -> None:
        """A crash hid the outcome of an attempt: the next one may be a duplicate."""

    def refused(self, at: int, refusal: Refusal) -> None:
        """Mail was refused at the door."""

    def connected(self, at: int, attempt: Attempt) -> None:
        """A connection to a next hop was opened: where to, and how long it took."""

    def connect_failed(self, at: int, attempt: Attempt, reason: str) -> None:
        """A connection to a next hop could not be opened; `reason` is for people."""
