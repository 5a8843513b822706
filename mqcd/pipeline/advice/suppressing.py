"""Recipients that are dead by evidence, from `recipients` and `sites`.

Evidence is a permanent refusal that is about this mailbox: by its status code, or, where that says nothing,
by its words; given to RCPT or later by a next hop. Policy refusals are none, nor is anything that this
server found out by itself (no route, or advice in effect), nor are the refusals of a time in which a site
refused nearly all. What was refused before mail was taken for the same recipient counts no more.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.pipeline.advice.decisions import DAY, HOUR, Rules
from mqcd.pipeline.tables.replies import shape

DEAD = ("5.1.1", "5.1.3", "5.1.6", "5.2.1")
"""No such mailbox, bad syntax, moved without a new address, disabled (RFC 3463, 3.2 and 3.3)."""
_VAGUE = ("", "5.0.0", "5.1.0", "5.5.0")
"""Statuses that say nothing: the words count."""
_NO_USER = (
    r"(no such|unknown|invalid|non-?existent) (local |virtual )?(user|recipient|mailbox|account|address)"
    r"|(user|recipient|mailbox|account|address)\b.{0,40}\b(unknown|not found)"
    r"|does( not|n.t) exist"
)
_POLICY = r"\bspam|\bblocked|black.?list|block.?list|reputation|dnsbl|\bpolicy|dmarc"
"""Words of a policy, whatever the status code says."""
_PHASES = ("rcpt", "data", "dot")
FEW, AT_ONCE, LONG_AGO = "few", "at-once", "long-ago"
"""Why evidence is not enough."""
_REPLY = 200
"""Characters of a reply that are kept."""


def name_of(recipient: Column, domain: Column) -> Column:
    """A recipient as suppressions compare it, see `mqcd.config.advice.comparable`; hashes stay."""
    local = F.lower(F.regexp_replace(recipient, "@[^@]*$", ""))
    return F.when(recipient.contains("@"), F.concat(local, F.lit("@"), domain)).otherwise(recipient)


def refusals(recipients: DataFrame) -> DataFrame:
    """Replies about a mailbox."""
    words = F.lower(shape(F.coalesce("reply", F.lit(""))))
    vague = F.coalesce("status", F.lit("")).isin(*_VAGUE) & words.rlike(_NO_USER)
    selected = (
        (F.col("outcome") == "bounced")
        & F.col("code").between(500, 599)
        & F.col("phase").isin(*_PHASES)
        & (F.coalesce("status", F.lit("")).isin(*DEAD) | vague)
        & ~words.rlike(_POLICY)
    )
    return recipients.where(selected).select(
        name_of(F.col("recipient"), F.col("domain")).alias("name"),
        F.coalesce("site", "destination").alias("site"),
        F.unix_millis("ended").alias("at"),
        "node", "spid", "status", "code",
        F.substring("reply", 1, _REPLY).alias("reply"),
        F.concat_ws("/", "node", "shard", "last_sequence").alias("event"),
    )  # fmt: skip


def of_single_ones(refused: DataFrame, sites: DataFrame, rules: Rules) -> DataFrame:
    """Without those of hours and days in which their site refused as many recipients as it took, or more."""
    for span in (HOUR, DAY):
        period = F.floor(F.col("at") / F.lit(span)).alias("period")
        many = (
            refused.groupBy("site", period)
            .agg(F.count_distinct("name").alias("names"))
            .where(F.col("names") >= rules.whole_site)
        )
        when = F.floor(F.unix_millis("hour") / F.lit(span)).alias("period")
        taken = sites.groupBy("site", when).agg(F.sum("delivered").alias("taken"))
        ill = many.join(taken, ["site", "period"], "left").where(
            F.col("names") >= F.coalesce("taken", F.lit(0))
        )
        refused = (
            refused.withColumn("period", F.floor(F.col("at") / F.lit(span)))
            .join(ill.select("site", "period"), ["site", "period"], "left_anti")
            .drop("period")
        )
    return refused


def refused(recipients: DataFrame, sites: DataFrame, rules: Rules, now: int) -> DataFrame:
    """A row for each recipient with evidence against it at `now`: `name`, `messages`, `first`, `last`,
    `said`, and `short`: which rule it does not meet, null where it is to be suppressed."""
    ended = F.unix_millis("ended")
    recent = recipients.where((ended >= now - rules.horizon) & (ended <= now))
    evidence = of_single_ones(refusals(recent), sites, rules)
    taken = (
        recent.where(F.col("delivered") > 0)
        .select(name_of(F.col("recipient"), F.col("domain")).alias("name"), ended.alias("taken"))
        .join(evidence.select("name").distinct(), "name", "left_semi")
        .groupBy("name")
        .agg(F.max("taken").alias("taken"))
    )
    since = evidence.join(taken, "name", "left").where(F.col("at") > F.coalesce("taken", F.lit(0)))
    found = since.groupBy("name").agg(
        F.count_distinct("node", "spid").alias("messages"),
        F.min("at").alias("first"),
        F.max("at").alias("last"),
        F.max(F.struct("at", "status", "code", "reply", "event", "site")).alias("said"),
    )
    short = F.when(F.col("messages") < rules.messages, F.lit(FEW))
    short = short.when(F.col("last") - F.col("first") < rules.apart, F.lit(AT_ONCE))
    return found.withColumn("short", short.when(F.col("last") <= now - rules.suppressed, F.lit(LONG_AGO)))


def dead(recipients: DataFrame, sites: DataFrame, rules: Rules, now: int) -> DataFrame:
    """Those of `refused` to be suppressed."""
    return refused(recipients, sites, rules, now).where(F.col("short").isNull())
