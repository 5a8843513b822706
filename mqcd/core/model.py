"""The values that the whole server speaks of: envelope, submission, recipient, verdict.

All but a `Key` are frozen; a changed recipient is a new one made by `dataclasses.replace`. Times are
milliseconds since the Unix epoch, sizes are octets. A remote server's refusal is a value here, never an
exception.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mqcd.core.address import domain_of
from mqcd.core.labels import HOLD, TENANT, value_of
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value

MAX_STORED_REPLY = 200
"""Octets of the last reply's text that a record keeps."""
MAX_LAST_WORDS = 1000
"""The same in area bounces, where the record waits for its report, which quotes them."""


class Word(StrEnum):
    """An enumeration of words that is often a key: hashed as the text it is, without Enum's detour."""

    __hash__ = str.__hash__


class Area(Word):
    """Where a recipient record rests."""

    INCOMING = "incoming"
    DEFERRED = "deferred"
    BOUNCES = "bounces"
    HELD = "held"
    REMOVED = "removed"
    """Ended by an operator: not queued any more, but to be restored until it is due."""


BY_DUE = frozenset({Area.DEFERRED, Area.HELD, Area.REMOVED})
"""Areas whose records have a due time, and rest in its order."""


class Body(Word):
    """What the client declared the content to be (RFC 6152)."""

    SEVEN = "7BIT"
    EIGHT = "8BITMIME"


class Origin(Word):
    """How a message came into the queue."""

    SMTP = "smtp"
    REPORT = "report"
    IMPORT = "import"


@value
class Envelope:
    """What is known of a message besides its content and recipients; shared by all its recipients."""

    spid: int
    """The message's name, reserved from the store that will take it."""
    sender: str
    """Reverse-path; "" is the null one."""
    received: int
    """When it was accepted, ms."""
    origin: Origin = Origin.SMTP
    body: Body = Body.SEVEN
    smtputf8: bool = False
    """The client used SMTPUTF8 (RFC 6531): the next hop must offer it."""
    zone: str = ""
    """Egress zone that a header of the message chose at the door; "" = no header did."""
    listener: str = ""
    """Name of the listener that took it."""
    client: str = ""
    """Address of the client that sent it."""
    user: str = ""
    """Authenticated identity; "" without."""
    tls: str = ""
    """TLS version of the session it came in by; "" without."""
    dsn: str = ""
    """RET and ENVID as given with MAIL (RFC 3461), or ""."""
    release: int = 0
    """Not to be sent before this time, ms (RFC 4865); 0 = at once."""
    priority: int = 0
    """MT-PRIORITY (RFC 6710): -9 to 9, higher goes first."""
    labels: str = ""
    """What selections and scheduling know of the header and the session, see `core.labels`."""
    session: str = field(default="", compare=False)
    """Names the session that it came in by, for log and event; the record does not keep it."""
    message_id: str = field(default="", compare=False)
    """The field of its header, for the same; the record does not keep it."""

    @property
    def hold(self) -> str:
        """The name that it was accepted under to be held, "" = none."""
        return value_of(self.labels, HOLD) if HOLD in self.labels else ""

    @property
    def tenant(self) -> str:
        """With whose mail it shares its turns: the tenant that the door has recorded, else the listener."""
        return (value_of(self.labels, TENANT) if self.labels else "") or self.listener


@value
class Recipient:
    """One recipient record: the unit of scheduling. (spid, qid) names it for ever."""

    envelope: Envelope
    size: int
    """Octets of the content."""
    qid: int
    """Number within the message, from 1."""
    address: str
    area: Area = Area.INCOMING
    due: int = 0
    """Not to be tried before this time, ms; 0 = at once."""
    attempts: int = 0
    """Attempts that have ended, with or without a known outcome."""
    unknowns: int = 0
    """How often a crash left an attempt's outcome unknown."""
    code: int = 0
    """Last SMTP code; 0 = none yet."""
    status: str = ""
    """Last enhanced status code."""
    reply: str = ""
    """Text of the last reply, at most MAX_STORED_REPLY octets; in area bounces MAX_LAST_WORDS."""
    remote: str = ""
    """Name of the host that gave the last reply; "" when it was ourselves. In area bounces the attempt's
    phase and time and the recipient's end follow it, see `transition.last_attempt`."""
    dsn: str = ""
    """NOTIFY and ORCPT as given with RCPT (RFC 3461), or ""."""
    linked: bool = False
    """Whether a store on disk keeps a name of its content for it alone."""
    warned: bool = False
    """Whether a delay report has been sent for it: that happens once."""
    route: str = ""
    """The next hop that an operator chose, as `host:port`; "" = what the configuration says."""
    amended: str = ""
    """What a batch made of it, what it was before: see `queueing.amendment`; "" = nothing can be undone."""

    @property
    def spid(self) -> int:
        return self.envelope.spid

    @property
    def key(self) -> tuple[int, int]:
        """(spid, qid): the name for ever."""
        return self.envelope.spid, self.qid

    @property
    def domain(self) -> str:
        """The recipient's domain in comparable form."""
        return domain_of(self.address)

    @property
    def lane_key(self) -> str:
        """What suspensions of its destination go by: the domain, or the next hop that an operator chose."""
        return self.route or self.domain

    @property
    def is_report(self) -> bool:
        """Whether its sender is null: such mail is never reported on (RFC 5321, 4.5.5)."""
        return not self.envelope.sender


@dataclass(slots=True)
class Key:
    """An idempotency key, see `core.queueing.idempotency`: its message is accepted once."""

    name: bytes
    """16 octets: a hash of the key and its owner."""
    digest: bytes = b""
    """8 octets of the message's own; complete once all of the content has been read."""


@value
class Submission:
    """A message on its way into the queue."""

    envelope: Envelope
    recipients: Sequence[str]
    """Forward-paths, at least one; numbered from 1 in this order."""
    content: bytes | AsyncIterator[bytes]
    """RFC 5322 octets, CRLF, not dot-stuffed; whole when small, else in chunks as they arrive. What
    the iterator raises passes through `enqueue` and nothing is kept."""
    recipient_dsn: Sequence[str] = ()
    """NOTIFY and ORCPT for each recipient, or empty."""
    key: Key | None = None
    """None = every submission is a message of its own."""


class Phase(Word):
    """How far an attempt came; names where a connection broke."""

    ROUTE = "route"
    CONNECT = "connect"
    GREETING = "greeting"
    EHLO = "ehlo"
    TLS = "tls"
    AUTH = "auth"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"
    DOT = "dot"


@value
class Attempt:
    """Where an attempt went and how long it took; shared by the recipients that travelled together."""

    destination: str
    """What the recipient was scheduled by: a relay or a site."""
    zone: str = ""
    """The egress zone that it was tried from; "" is mail that no zone takes."""
    phase: Phase
    """The last phase entered."""
    remote_host: str = ""
    remote_addr: str = ""
    source_addr: str = ""
    tls: str = ""
    """TLS version in use with the next hop; ""= none."""
    connect_ms: int = 0
    """Time to open the connection; 0 when a kept one was used."""
    attempt_ms: int = 0
    """Time from the start of the transaction to its verdict."""
    at: int = 0
    """When it ended, ms; 0 = not known."""
    session: str = ""
    """Names the connection in the log; "" = there was none. No record keeps it."""


@value
class Delivered:
    """The next hop took responsibility: it replied 250 to the final dot (or LMTP's per recipient)."""

    reply: Reply
    attempt: Attempt


@value
class Deferred:
    """To be tried again at `due`, ms."""

    reply: Reply
    attempt: Attempt
    due: int
    possibly_delivered: bool = False
    """The connection broke after the final dot: the next attempt may be a duplicate."""
    warning: int = 0
    """Not 0: a report is accepted in the same settle that records the delay report, and that it is tried
    until this time, ms."""
    held: bool = False
    """It rests for its domain (see `core.queueing.holding`), at the longest until `due`."""


@value
class Bounced:
    """Refused for good; waits for the reporting task, unless it is a report itself."""

    reply: Reply
    attempt: Attempt


@value
class Expired:
    """Too old after one more failed attempt; waits for the reporting task like a bounce."""

    reply: Reply
    attempt: Attempt


@value
class Reported:
    """End of a bounce: the report on it is accepted in the same settle."""

    report_spid: int


@value
class Discarded:
    """End of a bounce without a report, by setting; or of what another store has now."""

    reason: str
    undone: str = ""
    """The verb of its end, which the other store has; "" = none."""


class Action(Word):
    """What an operator does to recipients."""

    HOLD = "hold"
    RELEASE = "release"
    REMOVE = "remove"
    BOUNCE = "bounce"
    REDIRECT = "redirect"
    RESCHEDULE = "reschedule"
    RETRY = "retry"
    UNDO = "undo"


@value
class Batch:
    """One action over a selection; every event of it carries `id`, `by` and `reason`."""

    id: str
    """No other batch has it; without spaces."""
    action: Action
    at: int
    """When it was asked for, ms; it applies to what was accepted until then."""
    by: str
    """Who asked for it, as `uid:1000`."""
    reason: str = ""
    until: int = 0
    """Of a removal or a bounce the end of its grace, of a reschedule or a retry the due time, ms."""
    target: str = ""
    """Of a redirection the new address, or a next hop as `host:port`; of an undo the batch."""
    report: bool = False
    """Of a removal or a bounce: whether the sender gets a report when the grace is over."""


@value
class Amended:
    """What batches do to one recipient."""

    batch: Batch
    """The last one; the event log has it alone."""
    earlier: tuple[Batch, ...] = ()
    """Those before it, in their order, that it did not leave the time to."""


@value
class Purged:
    """The grace of an operator's removal or bounce is over: it leaves, or waits for its report."""


PutOff = Deferred
"""Verdicts after which another attempt follows: each has `due`, `warning` and `held`."""
NotDelivered = PutOff | Bounced | Expired
"""Ends of an attempt without a delivery."""
Attempted = Delivered | NotDelivered
"""Ends of an attempt, which counts: each has its reply and its attempt. The others have neither."""
EndOfBounce = Reported | Discarded
"""What ends a bounce, and comes to nothing else."""
ByOperator = Amended | Purged
"""What follows from an operator's action."""
Verdict = Attempted | EndOfBounce | ByOperator
"""Each is of one family; callers ask for the family, so that what they do holds for a new member, too."""


@value
class Settlement:
    """A verdict and the recipient it is for."""

    recipient: Recipient
    verdict: Verdict


@value
class AreaStats:
    """What one area holds, in flight or not."""

    recipients: int = 0
    octets: int = 0
    """Sum of the messages' sizes, counted once per recipient."""
    oldest: int | None = None
    """When the oldest was accepted, ms; None when the area is empty."""
