"""What can be done to mail that waits, as a table: the words for it, and what a form has to ask for. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mqcd.core.units import duration_of
from mqcd.core.value import value
from mqcd.page.ui.forms import Form

MOST_REASON = 200
"""Characters of a reason that the server keeps."""


class BadField(ValueError):
    """A field of the form cannot be used."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


@value
class Act:
    """One action."""

    name: str
    """As the server calls it."""
    verb: str
    done: str
    """Finishes "1,234 recipients are ..."."""
    gloss: str
    """What it does, and whether it can be taken back."""
    fields: tuple[str, ...] = ()
    """What it needs to know: `target`, `delay` or `report`."""
    report: bool = False
    """What `report` is at first."""


_ALL = (
    Act(
        name="retry",
        verb="Try now",
        done="due now",
        gloss="Waiting mail is tried now. A suspended destination gets one message first, as a probe. "
        "It can be undone while the mail still waits.",
    ),
    Act(
        name="hold",
        verb="Hold",
        done="held",
        gloss="Mail stays in the queue and is not tried until it is released. It can be undone.",
    ),
    Act(
        name="release",
        verb="Release",
        done="released",
        gloss="Held mail is tried again from now on. It can be undone while the mail still waits.",
    ),
    Act(
        name="remove",
        verb="Remove",
        done="removed",
        gloss="Mail leaves the queue undelivered. Until the grace (setting grace) is over it can be undone.",
        fields=("report",),
    ),
    Act(
        name="bounce",
        verb="Bounce",
        done="bounced",
        gloss="Mail is returned to its senders. It can be undone until the reports leave, after the grace.",
        fields=("report",),
        report=True,
    ),
    Act(
        name="redirect",
        verb="Redirect",
        done="redirected",
        gloss="Mail goes by another host, or to another address. It can be undone while it still waits.",
        fields=("target",),
    ),
    Act(
        name="reschedule",
        verb="Reschedule",
        done="rescheduled",
        gloss="The time of the next attempt changes; at most the longest retry delay from now.",
        fields=("delay",),
    ),
)
ACTIONS: Mapping[str, Act] = {each.name: each for each in _ALL}
"""By name, in the order in which they are offered."""


def details(act: Act, form: Form, now: int) -> dict[str, object]:
    """The fields of the server's order that an action needs. Raises BadField."""
    found: dict[str, object] = {}
    if "report" in act.fields:
        found["report"] = form.get("report") == "Y"
    if "target" in act.fields:
        if not form.get("target"):
            raise BadField("target", "Name a host, such as relay.example:25, or an address.")
        found["target"] = form.get("target")
    if "delay" in act.fields:
        delay = duration_of(form.get("delay"))
        if delay is None:
            raise BadField("delay", "Expected a time such as 10m, 1h30m or 0s.")
        found["until"] = now + delay
    return found
