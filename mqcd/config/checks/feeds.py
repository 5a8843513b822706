"""Contradictions in settings of feeds. Pure: each is a path and a text."""

from collections import Counter
from collections.abc import Iterator

from mqcd.config.settings import Settings

_STEM = "ops/feeds/webhooks/webhook"
_TAKEN = "traces"


def feeds(settings: Settings) -> Iterator[tuple[str, str]]:
    """Names of webhooks: each is that of a file, and one is taken."""
    names = Counter(each.name for each in settings.ops.feeds.webhooks)
    for index, each in enumerate(settings.ops.feeds.webhooks, start=1):
        if names[each.name] > 1:
            yield f"{_STEM}[{index}]@name", f"{each.name} is named twice: give each webhook a name of its own"
        if each.name == _TAKEN:
            yield f"{_STEM}[{index}]@name", f"{_TAKEN} is the feed of traces: choose another name"
