"""The settings of the queue on disk."""

import pathlib

from mqcd.config.blocks import Given, attribute, block, free, many, setting
from mqcd.config.kinds.fields import (
    DELAY,
    YES_NO,
    AutoCount,
    Choice,
    Count,
    Duration,
    FilePath,
    Line,
    Listed,
    Percent,
    Size,
)
from mqcd.config.kinds.names import DOMAIN_PATTERN, LOGIN
from mqcd.core.queueing.holding import HoldMode
from mqcd.core.units import DAY, GIB, HOUR, KIB, MIB, MINUTE, SECOND, YEAR
from mqcd.core.value import value


@value
class SpoolSettings:
    """Where and how message contents are stored."""

    rootpath: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/spool"), "directory of the spool's silos", FilePath()
    )
    bufsize: int = setting(
        16 * KIB, "write buffer of a spool file, octets; 512 to 16M", Size(least=512, most=16 * MIB)
    )
    maxspidcache: int = setting(
        250_000, "messages whose recipients are counted in memory; 0 = no limit", Count()
    )
    hardlinks: bool = setting(
        False, "one hard link per recipient instead of counting a message's recipients", YES_NO
    )
    silofactor: int = setting(
        5,
        "a new spool has 2 to this power of directories; an existing one keeps its number; 0 to 8",
        Count(most=8),
    )


RECORD = 256
"""Octets that the record of a recipient with long names takes."""


@value
class JournalSettings:
    """The log that makes every change of the queue durable."""

    segmentsize: int = setting(
        64 * MIB,
        "octets of one segment; a message may have a recipient for each KB of it; 64K to 1G",
        Size(least=64 * KIB, most=GIB),
    )
    segments: int = setting(8, "segments in the ring; 4 to 1024", Count(least=4, most=1024))
    inline_max: int = setting(
        256 * KIB,
        "octets of content up to which a message is stored in the journal, not in the spool;"
        " at most an eighth of segmentsize counts",
        Size(),
    )
    seal_age: int = setting(
        5 * SECOND, "time after its first entry at which a segment is closed", Duration(least=1)
    )
    evacuate_age: int = setting(
        60 * SECOND, "age at which a closed segment moves to clusters and spool", Duration(least=1)
    )

    @property
    def most_inline(self) -> int:
        """Half of the largest frame, which is a quarter of a segment: record lines find room beside it."""
        return self.segmentsize // 8

    @property
    def most_recipients(self) -> int:
        """Of one message, about: their records have to fit into the largest frame."""
        return self.segmentsize // 4 // RECORD


@value
class ShardSettings:
    """Where one shard lies. The first is shard 0: the queue's own roots, unless these are given here."""

    rootpath: pathlib.Path | None = attribute(
        None, "directory of its journal, manifest and clusters; none = in the queue's", FilePath()
    )
    spool: pathlib.Path | None = attribute(None, "directory of its silos; none = in the spool's", FilePath())


@value
class HeldDomainSettings:
    """A domain whose mail is held instead of being retried."""

    name: str = attribute(
        "",
        "recipient domain; *.domain = those below it, * = all; the closest counts; must be given",
        DOMAIN_PATTERN,
        required=True,
    )
    mode: HoldMode = attribute(
        HoldMode.HOLD,
        "hold = until an operator releases it; etrn = after a try that reached no host, until ETRN or a"
        " probe that succeeds; atrn = until a user collects it by ATRN",
        Choice(HoldMode),
    )
    user: tuple[str, ...] = attribute(
        (),
        "users that may ask for its mail by ETRN or ATRN; none = any client for etrn, nobody for atrn",
        Listed(LOGIN),
    )


MOST_SHARDS = 64
LEAST_GRANULARITY = SECOND
"""Less is raised to it with a warning."""
CLUSTER = "cluster"
"""The class of the clustered-file queue."""


@value
class StoreSettings:
    """Where mail lies, if not in the clustered-file queue."""

    kind: str = setting(
        CLUSTER,
        "cluster, memory, files, symlinks, leveldb, redis, s3, postgres, or module:Class of your own",
        Line(),
        at="@class",
    )
    given: tuple[Given, ...] = free()
    """Its settings."""


@value
class QueueSettings:
    """The queue on disk: its directories, retry schedule and limits."""

    rootpath: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/queue"), "directory of journal, manifest and clusters", FilePath()
    )
    shards: int = setting(
        0,
        "parts of the queue, each with a process of its own; auto = one a processor, at most 4",
        AutoCount(least=1, most=MOST_SHARDS),
    )
    maxclustersize: int = setting(
        256 * KIB, "octets that a cluster file may hold; 4K to 256M", Size(least=4096, most=256 * MIB)
    )
    maxmemoryqueue: int = setting(0, "most recipients that one claim loads; 0 = no limit", Count())
    retry_maxtime: int = setting(
        72 * HOUR,
        "age limit of a failing recipient; then it expires and is reported; at most 365d",
        Duration(most=YEAR),
    )
    retry_maxtime_reports: int = setting(
        24 * HOUR, "the same for reports; never more than retry_maxtime", Duration(most=YEAR)
    )
    retry_delays: tuple[int, ...] = setting(
        (15 * MINUTE, 30 * MINUTE, 2 * HOUR, 4 * HOUR),
        "delays after the first, second, ... failed attempt; the last repeats; each at most 365d",
        Listed(DELAY, least=1),
    )
    retry_granularity: int = setting(
        MINUTE,
        "deferred recipients due within this span share files; at least 1s counts; at most 365d",
        Duration(most=YEAR),
    )
    retry_jitter: int = setting(10, "largest random addition to a retry delay, as a share of it", Percent())
    deferred_maxignore: int = setting(5 * MINUTE, "no effect: new and due mail always take turns", Duration())
    prune_graceperiod: int = setting(
        7 * DAY, "age at which foreign files are removed from the spool", Duration()
    )
    read_only: bool = setting(False, "show the queue only: no mail is accepted, tried or changed", YES_NO)
    grace: int = setting(
        HOUR,
        "how long mail that an operator removed or bounced can be restored; at most 365d",
        Duration(most=YEAR),
    )
    key_age: int = setting(DAY, "how long idempotency keys are remembered; at most 365d", Duration(most=YEAR))
    held_maxtime: int = setting(
        5 * DAY,
        "age at which mail for a domain held for ATRN expires and is reported; at most 365d",
        Duration(least=1, most=YEAR),
    )
    held_probe_interval: int = setting(
        15 * MINUTE,
        "how often a connection is tried to a domain held for ETRN that has mail; 1s to 365d",
        Duration(least=SECOND, most=YEAR),
    )
    minfree: int = setting(
        256 * MIB, "free octets on each file system below which listeners reply 4xx", Size()
    )
    mininodes: int = setting(
        10_000, "free inodes on each file system below which listeners reply 4xx", Count()
    )
    memorybudget: int = setting(
        64 * MIB,
        "most octets of memory for recipients in the journal; at least 1M, and 192K a segment, in each shard",
        Size(least=MIB),
    )
    places: tuple[ShardSettings, ...] = many(ShardSettings, "shard", at="shards")
    """Of each shard, the first one's first, where `shards` is a list."""
    held: tuple[HeldDomainSettings, ...] = many(HeldDomainSettings, "domain")
    store: StoreSettings = block(StoreSettings())
    spool: SpoolSettings = block(SpoolSettings())
    journal: JournalSettings = block(JournalSettings())
