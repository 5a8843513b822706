"""What a report shows, as plain values: a bounded number of rows, whatever the size of the tables. Pure.

Times are ms since the Unix epoch, durations ms. Counts are of recipients, or of attempts where it says so.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, Generic, TypeVar

from mqcd.core.value import value
from mqcd.pipeline.tables.named import Named

if TYPE_CHECKING:
    from mqcd.pipeline.account.account import Account

T = TypeVar("T")

TOP = 20
"""Rows of a table; the others are added up in one more."""
LISTED = 25
"""Recipients that are named, of each kind."""
MOMENTS = 170
"""Pieces that the period is cut into at most, nearly: a week of hours."""
OVERDUE_MS = 6 * 3_600_000
"""From when on a recipient that was due and not tried is called stuck; the server's `watchdog` says it."""


@value
class Tried:
    """What attempts came to."""

    attempts: int = 0
    delivered: int = 0
    deferred: int = 0
    bounced: int = 0
    expired: int = 0
    first_attempts: int = 0
    first_delivered: int = 0
    tls: int = 0
    """Attempts with TLS."""
    latency: tuple[int, int, int] | None = None
    """Time in the queue of what was delivered: of half of it at most, of 90 and of 99 percent."""


SUMS = tuple(each.name for each in fields(Tried) if each.name != "latency")
"""What of attempts can be added up, and subtracted: percentiles cannot."""


@value
class Moment:
    """A piece of the period."""

    at: int
    accepted: int
    tried: Tried


@value
class Waiting:
    """The recipients that waited at the end of an hour."""

    at: int
    """The hour's beginning."""
    recipients: dict[str, int]
    """By age, as `queue_age` names them."""


@value
class Reply:
    """What a server said."""

    at: int
    code: int | None
    status: str | None
    text: str


@value
class Site:
    """How one site took mail."""

    name: str
    tried: Tried
    last: Reply | None = None
    """The newest one that was no acceptance."""


@value
class Troubled:
    """A site that keeps mail from arriving; counts are of recipients accepted in the period."""

    site: str
    lost: int
    """Bounced or expired."""
    waiting: int
    """Put off, and not taken yet."""
    recipients: int
    """All that were for it."""
    before: tuple[int, int] | None = None
    """Of the period before: lost and waiting, and all; None where nothing is known of that time."""
    cause: str
    """The commonest class of what it kept, by the words of the replies or else the events' own."""
    last: Reply
    """The newest one."""


@value
class Sender:
    """What one sender gave us."""

    name: str
    messages: int = 0
    octets: int = 0
    accepted: int = 0
    delivered: int = 0
    deferred: int = 0
    bounced: int = 0
    expired: int = 0


OF_SENDERS = tuple(each.name for each in fields(Sender) if each.name != "name")


@value
class Shape:
    """Replies that say the same; a whole class of them has neither code nor shape."""

    kind: str
    count: int
    deferred: int
    bounced: int
    expired: int
    shape: str = ""
    code: int | None = None
    status: str | None = None
    sites: int = 0
    """The most in one hour."""
    example: str = ""


@value
class Listing(Generic[T]):
    """The first rows of many."""

    rows: tuple[T, ...] = ()
    total: int = 0
    """How many there are in all."""


@value
class Coverage:
    """What the report is made of, and what it lacks."""

    made: int
    since: int | None = None
    until: int | None = None
    nodes: tuple[str, ...] = ()
    node_count: int = 0
    events: int = 0
    batch: int = 0
    files: int = 0
    """Event files that are in the tables."""
    waiting_files: int = 0
    """Closed ones that are not."""
    gaps: tuple[str, ...] = ()
    """Files that are absent between others, by name."""
    damage: tuple[tuple[str, int], ...] = ()
    """Lines that could not be read: why, and how many."""
    unasked: str = ""
    """Why the queue was not asked, where there is no account."""


@value
class Figures:
    """All of it."""

    coverage: Coverage
    width: int = 3_600_000
    """Of a moment."""
    moments: tuple[Moment, ...] = ()
    """Without a gap."""
    waiting: tuple[Waiting, ...] = ()
    ages: tuple[str, ...] = ()
    """Names of ages, youngest first."""
    account: Account | None = None
    outcomes: dict[str, int] = field(default_factory=dict)
    """Of those accepted in the period, by events."""
    total: Tried = field(default_factory=Tried)
    """Of the whole period."""
    accepted: int = 0
    sites: Listing[Site] = field(default_factory=Listing)
    """Those with the most attempts."""
    troubled: Listing[Troubled] = field(default_factory=Listing)
    """The sites that keep most mail from arriving."""
    worst: tuple[Site, ...] = ()
    """The sites that accepted least, by recipients not accepted."""
    senders: Listing[Sender] = field(default_factory=Listing)
    all_senders: Sender = field(default_factory=lambda: Sender(name=""))
    classes: tuple[Shape, ...] = ()
    replies: Listing[Shape] = field(default_factory=Listing)
    refusals: int = 0
    """Verdicts that were no delivery."""
    duplicates: Listing[Named] = field(default_factory=Listing)
    stuck: Listing[Named] = field(default_factory=Listing)
    overdue_ms: int = OVERDUE_MS
    """How long after they were due; 0: they were not looked for."""
