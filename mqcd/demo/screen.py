"""What the demonstration shows: a table that grows while things happen, then one exhibit after another.

Readable at 80 columns, one line for each recipient, so that the live table fits on 24 lines. Where
standard output is no terminal the table is printed once, as it stands at the end.
"""

from __future__ import annotations

import email
import email.message
import email.policy
import json
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mqcd.core.events import Verb
from mqcd.core.ports import Clock
from mqcd.demo.checks import Finding
from mqcd.demo.watching import Story

_MARKS = {
    Verb.ACCEPTED: ("●", "cyan", "accepted"),
    Verb.ATTEMPTED: ("●", "cyan", "being tried"),
    Verb.DELIVERED: ("✓", "green", "delivered"),
    Verb.DEFERRED: ("↻", "yellow", "deferred"),
    Verb.BOUNCED: ("✗", "red", "refused"),
    Verb.REPORTED: ("✗", "red", "refused, and reported to you"),
}
_WAITING = ("·", "dim", "")


class Stories:
    """The table of stories, drawn anew several times a second while it is live."""

    def __init__(self, stories: Sequence[Story], clock: Clock) -> None:
        self._stories = stories
        self._clock = clock

    def __rich__(self) -> Table:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False, expand=True)
        table.add_column("message", width=10, no_wrap=True)
        table.add_column("recipient", width=20, no_wrap=True)
        table.add_column("what became of it", ratio=1, no_wrap=True, overflow="ellipsis")
        now = self._clock.now()
        for story in self._stories:
            table.add_row(story.kind, story.address, _line(story, now))
        return table


def _line(story: Story, now: int) -> Text:
    mark, style, words = _MARKS.get(story.verbs[-1], _WAITING) if story.verbs else _WAITING
    line = Text.assemble((f"{mark} ", style), (words, style))
    last = story.verbs[-1] if story.verbs else None
    if last is Verb.DELIVERED:
        tries = story.verbs.count(Verb.DEFERRED) + 1
        line.append(f" in {_time(story.took_ms)}" + (f", at the {_ordinal(tries)} try" if tries > 1 else ""))
    elif last is Verb.DEFERRED:
        line.append(f", again in {_time(max(story.due - now, 0))}")
    if story.reply and last is Verb.DEFERRED:
        line.append(f"  {story.reply}", style="dim")
    return line


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _time(ms: int) -> str:
    if ms < 1000:
        return f"{ms} ms"
    return f"{ms / 1000:.1f} s" if ms < 60_000 else f"{(ms + 30_000) // 60_000} min"


class Screen:
    """Prints to one console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def live(self, stories: Stories) -> Live:
        """Shows the stories while it is entered."""
        return Live(stories, console=self.console, refresh_per_second=8)

    def end_of_live(self) -> None:
        """On a terminal the table ends its line by itself, elsewhere it does not."""
        if not self.console.is_terminal:
            self.console.print()

    def title(self, text: str) -> None:
        self.console.print()
        self.console.rule(Text(text, style="bold"), align="left", style="blue")

    def say(self, text: str | Text = "") -> None:
        self.console.print(text)

    def raw(self, text: str) -> None:
        """Output of a command, its colours as they are."""
        self.console.print(Text.from_ansi(text.rstrip("\n")))

    def plain(self, lines: Iterable[str]) -> None:
        """Lines that are folded, and mean nothing but themselves."""
        for line in lines:
            self.console.print(Text(line))

    def lines(self, lines: Iterable[str]) -> None:
        """Lines of a file: cut at the edge, not folded."""
        for line in lines:
            self.console.print(Text(line), no_wrap=True, overflow="ellipsis", crop=True)

    def events(self, lines: Sequence[str]) -> None:
        """The first line of an event file, and how many of each kind there are."""
        self.console.print(Text(lines[0]), overflow="fold")
        verbs = Counter(json.loads(line)["event"] for line in lines)
        counted = ", ".join(f"{count} {verb}" for verb, count in verbs.items())
        self.say(Text(f"{len(lines)} events: {counted}", style="dim"))

    def report(self, content: bytes) -> None:
        """A delivery status notification: its head, its words, its fields."""
        message = email.message_from_bytes(content, policy=email.policy.default)
        for name in ("From", "To", "Subject", "Content-Type"):
            value = str(message[name]).split("; boundary")[0]
            self.console.print(Text.assemble((f"{name}: ", "blue"), value), overflow="fold")
        for part in message.walk():
            if part.get_content_type() == "text/plain":
                self.say()
                self.say(Text(str(part.get_content()).strip()))
                break
        for fields in _status_fields(message):
            self.say()
            for name, value in fields:
                self.console.print(Text.assemble((f"{name}: ", "blue"), value), overflow="fold")

    def findings(self, findings: Iterable[Finding]) -> None:
        """What was checked, and whether it was so."""
        for finding in findings:
            mark, style = ("✓", "green") if finding.good else ("✗", "bold red")
            self.say(Text.assemble((f"{mark} ", style), finding.text))


def _status_fields(message: email.message.Message) -> Iterable[list[tuple[str, str]]]:
    """The blocks of the machine-readable part (RFC 3464, 2.1)."""
    for part in message.walk():
        if part.get_content_type() == "message/delivery-status":
            for block in part.walk():
                if not block.is_multipart() and block.items():
                    yield [(name, str(value)) for name, value in block.items()]
