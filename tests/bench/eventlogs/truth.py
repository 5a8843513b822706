"""What really happened, kept by the simulation and written beside the events.

    truth/world.json            sites with their habits and outages, dead and full mailboxes
    truth/NODE.json             sums of one node: ledger by hour, causes, success by delay, queue at the end
    truth/NODE-sites.csv        verdicts by hour and site
    truth/NODE-senders.csv      mail and verdicts by hour and sender
    truth/NODE-recipients.csv.gz  a row for each recipient

Hours go out when they are over and recipients when they end, so memory does not grow with the log.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.eventlogs.causes import CAUSES, Cause, End
from tests.bench.eventlogs.world import HOUR, Plan, World

if TYPE_CHECKING:
    from tests.bench.eventlogs.node import Mail

SITE = ("attempts", "delivered", "deferred", "bounced", "expired", "first_attempts", "first_delivered", "tls")
SENDER = ("messages", "accepted", "octets", "delivered", "deferred", "bounced", "expired")
LEDGER = (
    "accepted",
    "delivered",
    "bounced",
    "expired",
    "queued",
    "unknown",
    "duplicates",
    "possible_duplicates",
)
RECIPIENT = (
    "spid", "qid", "sender", "recipient", "site", "accepted", "first_attempt", "ended", "outcome",
    "attempts", "deferrals", "unknowns", "duplicate", "possible_duplicate", "twice", "cause",
)  # fmt: skip
DELAYS = (60_000, 300_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 28_800_000, 86_400_000)
"""Upper bounds of the success-by-delay curve, ms since the first attempt."""
_ROWS = 1000
_PLACE = {End.DELIVERED: 1, End.DEFERRED: 2, End.BOUNCED: 3, End.EXPIRED: 4}
_DONE = {End.DELIVERED: 1, End.BOUNCED: 2, End.EXPIRED: 3}


class Truth:
    """Of one node."""

    def __init__(self, directory: Path, node: str, world: World) -> None:
        self._path, self._node, self._world = directory, node, world
        self._hour = -1
        self._sites: dict[int, list[int]] = {}
        self._senders: dict[str, list[int]] = {}
        self._ledger: defaultdict[int, list[int]] = defaultdict(lambda: [0] * len(LEDGER))
        self._causes: Counter[Cause] = Counter()
        self._expired: Counter[Cause] = Counter()
        self._curve: Counter[tuple[int, int, bool]] = Counter()
        self._dead: Counter[str] = Counter()
        self._first: dict[str, int] = {}
        """When a dead address was first refused."""
        self._left = 0
        self.asides: Counter[str] = Counter()
        self._sites_file = (directory / f"{node}-sites.csv").open("w")
        self._senders_file = (directory / f"{node}-senders.csv").open("w")
        self._recipients_file = gzip.GzipFile(directory / f"{node}-recipients.csv.gz", "wb", compresslevel=1)
        self._rows: list[tuple[object, ...]] = []
        self._recipients_file.write((",".join(RECIPIENT) + "\n").encode())
        for file, names in ((self._sites_file, SITE), (self._senders_file, SENDER)):
            file.write(",".join(("hour", "key", *names)) + "\n")

    def turn(self, at: int) -> None:
        """The time of what comes next: an hour that is over goes out."""
        hour = at // HOUR
        if hour != self._hour:
            self._out()
            self._hour = hour

    def _out(self) -> None:
        at = self._hour * HOUR
        sites = csv.writer(self._sites_file, lineterminator="\n")
        sites.writerows((at, self._world.sites[key].name, *row) for key, row in self._sites.items())
        senders = csv.writer(self._senders_file, lineterminator="\n")
        senders.writerows((at, key, *row) for key, row in self._senders.items())
        self._sites.clear()
        self._senders.clear()

    def accepted(self, mail: Mail) -> None:
        """A recipient is in the queue."""
        row = self._of_sender(mail.sender)
        row[0] += mail.qid == 1
        row[1] += 1
        row[2] += mail.size
        self._ledger[mail.received // HOUR][0] += 1

    def _of_sender(self, sender: str) -> list[int]:
        row = self._senders.get(sender)
        if row is None:
            row = self._senders[sender] = [0] * len(SENDER)
        return row

    def verdict(self, mail: Mail, cause: Cause, end: End, at: int, *, tls: bool) -> None:
        """An attempt has ended."""
        site = self._sites.get(mail.site.index)
        if site is None:
            site = self._sites[mail.site.index] = [0] * len(SITE)
        place = _PLACE[end]
        site[0] += 1
        site[place] += 1
        site[7] += tls
        taken = end is End.DELIVERED
        if mail.attempts == 1:
            site[5] += 1
            site[6] += taken
        else:
            delay = next((i for i, most in enumerate(DELAYS) if at - mail.tried < most), len(DELAYS))
            self._curve[mail.site.index, delay, taken] += 1
        self._of_sender(mail.sender)[2 + place] += 1
        self._causes[cause] += 1
        if end is End.EXPIRED:
            self._expired[cause] += 1
        elif cause.name == "dead":
            self._dead[mail.recipient] += 1
            self._first.setdefault(mail.recipient, at)

    def ended(self, mail: Mail, end: End, cause: Cause, at: int) -> None:
        """There is nothing more to come for a recipient."""
        row = self._ledger[mail.received // HOUR]
        delivered = end is End.DELIVERED
        duplicate, possible = (delivered and count > 0 for count in (mail.unknowns, mail.doubts))
        possible = possible and not duplicate
        row[_DONE[end]] += 1
        row[5] += mail.unknowns
        row[6] += duplicate
        row[7] += possible
        self._recipient(mail, at, end.value, (duplicate, possible), cause.name)

    def left(self, mail: Mail) -> None:
        """It is in the queue when the log ends."""
        row = self._ledger[mail.received // HOUR]
        row[4] += 1
        row[5] += mail.unknowns
        self._left += 1
        self._recipient(mail, None, "queued", (False, False), mail.last)

    def _recipient(
        self, mail: Mail, ended: int | None, outcome: str, maybe: tuple[bool, bool], cause: str
    ) -> None:
        self._rows.append((
            mail.spid, mail.qid, mail.sender, mail.recipient, mail.site.name, mail.received,
            mail.begun or None, ended, outcome, mail.attempts, mail.deferrals, mail.unknowns,
            *map(int, maybe), int(mail.taken > 1), cause,
        ))  # fmt: skip
        if len(self._rows) >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        # One write of text: each row by itself would go through three layers.
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self._rows)
        self._recipients_file.write(text.getvalue().encode())
        self._rows.clear()

    def close(self, events: int, end: int) -> None:
        """Write the rest."""
        self._out()
        self._flush()
        for file in (self._sites_file, self._senders_file, self._recipients_file):
            file.close()
        curve = [
            {
                "site": self._world.sites[site].name,
                "below_ms": (*DELAYS, None)[delay],
                "taken": taken,
                "count": n,
            }
            for (site, delay, taken), n in sorted(self._curve.items())
        ]
        sums = {
            "node": self._node,
            "events": events,
            "asides": self.asides,
            "end": end,
            "queued": self._left,
            "ledger": {at * HOUR: dict(zip(LEDGER, row, strict=True)) for at, row in self._ledger.items()},
            "causes": {cause.name: n for cause, n in self._causes.items()},
            "expired": {cause.name: n for cause, n in self._expired.items()},
            "curve": curve,
            "dead": {name: {"refused": n, "first": self._first[name]} for name, n in self._dead.items()},
        }
        (self._path / f"{self._node}.json").write_text(json.dumps(sums, indent=1, ensure_ascii=False))


def write_world(directory: Path, plan: Plan, world: World) -> None:
    """What is so whatever happens in it."""
    sites = [
        {
            "site": site.name,
            "domains": [domain.name for domain in site.domains],
            **{
                name: getattr(site, name) for name in ("tls", "greylist_ms", "rate", "connections", "refusal")
            },
            "outages": [asdict(outage) for outage in site.outages],
            "dead": {f"user{n}@{d.shown}": back for d in site.domains for n, back in d.dead.items()},
            "full": {f"user{n}@{d.shown}": when for d in site.domains for n, when in d.full.items()},
        }
        for site in world.sites
    ]
    causes = {cause.name: {"suggests": cause.suggests, "class": cause.kind} for cause in CAUSES}
    told = {"plan": asdict(plan), "sites": sites, "causes": causes}
    (directory / "world.json").write_text(json.dumps(told, indent=1, ensure_ascii=False))


# ---------------------------------------------------------------- for those who compare


class Told:
    """The truth of all nodes together, read from its files."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self.world = json.loads((directory / "world.json").read_text())
        names = (path for path in sorted(directory.glob("*.json")) if path.name != "world.json")
        self.nodes = [json.loads(path.read_text()) for path in names]

    def recipients(self) -> Iterator[dict[str, str]]:
        """A row for each; numbers as text, "" where there is nothing to tell."""
        for path in sorted(self.path.glob("*-recipients.csv.gz")):
            node = path.name.removesuffix("-recipients.csv.gz")
            with gzip.open(path, "rt") as file:
                for row in csv.DictReader(io.StringIO(file.read())):
                    yield {"node": node, **row}

    def hourly(self, table: str) -> dict[tuple[int, str], dict[str, int]]:
        """`sites` or `senders`: by hour (ms) and name."""
        sums: defaultdict[tuple[int, str], Counter[str]] = defaultdict(Counter)
        for path in sorted(self.path.glob(f"*-{table}.csv")):
            with path.open() as file:
                for row in csv.DictReader(file):
                    key = int(row.pop("hour")), row.pop("key")
                    sums[key].update({name: int(value) for name, value in row.items()})
        return {key: dict(row) for key, row in sums.items()}

    def ledger(self) -> dict[tuple[str, int], dict[str, int]]:
        """By node and hour (ms) of acceptance."""
        return {(node["node"], int(hour)): row for node in self.nodes for hour, row in node["ledger"].items()}

    def causes(self) -> Counter[str]:
        """How many attempts ended by each cause."""
        return sum((Counter(node["causes"]) for node in self.nodes), Counter())
