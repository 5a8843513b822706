"""What is sent: one table of loads. A recipient's name holds its stream and number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

STREAMS = 8
"""More than any scenario has."""
KB, MB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Stream:
    """Messages of one size, from one source process."""

    octets: int
    share: Fraction = Fraction(1)
    """Of the scenario's messages."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One load."""

    title: str
    share: Fraction = Fraction(1)
    """Of the messages that `--messages` names."""
    streams: tuple[Stream, ...] = (Stream(4 * KB),)
    sessions: int = 20
    kept: bool = True
    """Whether the source keeps its connections."""
    recipients: int = 1
    """Of the one message, if more than one."""
    mixed: bool = False
    """Whether the sink defers 15 and refuses 5 percent."""
    standing: bool = False
    """Whether deferred mail waits in the queue all the while."""
    peers: tuple[str, ...] = ()
    """Peers of this scenario, if not all."""
    syncs: bool = False
    """Whether syncs are counted, in a run of their own."""

    def counts(self, messages: int) -> list[int]:
        """Messages of each stream."""
        if self.recipients > 1:
            return [1]
        whole = messages * self.share
        return [max(int(whole * stream.share), self.sessions // len(self.streams)) for stream in self.streams]

    def megabytes(self, messages: int) -> float:
        """All content."""
        pairs = zip(self.streams, self.counts(messages), strict=True)
        return sum(stream.octets * count for stream, count in pairs) / 1e6


def _large(title: str, octets: int, share: Fraction, *, syncs: bool = False) -> Scenario:
    return Scenario(title=title, streams=(Stream(octets),), share=share, syncs=syncs)


_SHARDS = ("mqcd-1", "mqcd-2", "mqcd-4", "postfix")

SCENARIOS: Mapping[str, Scenario] = {
    "new-1": Scenario(title="4 KB, new connections, 1", kept=False, sessions=1, share=Fraction(1, 4)),
    "new-20": Scenario(title="4 KB, new connections, 20", kept=False, syncs=True),
    "new-200": Scenario(title="4 KB, new connections, 200", kept=False, sessions=200),
    "kept-1": Scenario(title="4 KB, kept connection, 1", sessions=1, share=Fraction(1, 4), syncs=True),
    "kept-20": Scenario(title="4 KB, kept connections, 20", syncs=True),
    "kept-200": Scenario(title="4 KB, kept connections, 200", sessions=200),
    "100k": _large("100 KB", 100 * KB, Fraction(1, 2), syncs=True),
    "1m": _large("1 MB", MB, Fraction(1, 8)),
    "5m": _large("5 MB", 5 * MB, Fraction(1, 40)),
    "list": Scenario(title="one message, 10,000 recipients", sessions=1, recipients=10_000),
    "mix": Scenario(
        title="mix of sizes and verdicts",
        mixed=True,
        streams=(
            Stream(4 * KB, Fraction(70, 100)),
            Stream(30 * KB, Fraction(20, 100)),
            Stream(100 * KB, Fraction(9, 100)),
            Stream(MB, Fraction(1, 100)),
        ),
    ),
    "standing": Scenario(title="4 KB beside deferred mail", standing=True, peers=("mqcd", "postfix")),
    "shards-new": Scenario(title="4 KB, new connections, shards", kept=False, peers=_SHARDS),
    "shards-kept": Scenario(title="4 KB, kept connections, shards", peers=_SHARDS),
}
