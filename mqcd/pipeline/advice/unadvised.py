"""What was looked at and not advised, and why: silence alone would look like health. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mqcd.core.value import value
from mqcd.pipeline.advice.decisions import DAY, MAX_DOUBT, Rules
from mqcd.pipeline.advice.suppressing import AT_ONCE, FEW, LONG_AGO


@value
class Unadvised:
    """A subject and why there is no advice on it."""

    subject: str
    """A site, or how many recipients."""
    why: str


def asked_rarely(site: str, replies: int, rules: Rules) -> Unadvised:
    """A site that asks for less now and then."""
    days = rules.window // DAY
    why = f"asked for less {replies} times in {days} days; looked at from {rules.throttled} on"
    return Unadvised(subject=site, why=why)


def unexplained(site: str, replies: int) -> Unadvised:
    """A site that asks for less whatever it is sent."""
    why = f"asked for less {replies} times, and no limit explains {1 - MAX_DOUBT:.0%} of that"
    return Unadvised(subject=site, why=why)


def too_few_retries(site: str, retries: int, days: int, rules: Rules) -> Unadvised:
    """A site that puts mail off, of which little was seen."""
    wanted = f"{rules.retries} on {rules.days} days"
    return Unadvised(subject=site, why=f"{retries} retries on {days} days; a retry delay wants {wanted}")


def never_taken(site: str, retries: int, longest: str) -> Unadvised:
    """A site of which no retry succeeded."""
    return Unadvised(
        subject=site, why=f"no success in {retries} retries up to {longest}: nothing to advise yet"
    )


def recipients(short: Mapping[str, int], rules: Rules) -> list[Unadvised]:
    """Recipients that were refused, by the rule that they do not meet."""
    whys = {
        FEW: f"fewer than {rules.messages} messages within {rules.horizon // DAY} days",
        AT_ONCE: f"all within {rules.apart // 3_600_000} hours",
        LONG_AGO: f"the last refusal is more than {rules.suppressed // DAY} days old",
    }
    return [
        Unadvised(subject=f"{count} refused as no mailbox", why=whys[name])
        for name, count in sorted(short.items())
        if count
    ]
