"""The file of the standing rules, which all server processes of a queue share: read, changed, and looked at.

* A change is made under a lock on the file's directory and put in place by a rename: after a crash the file
  is the old or the new one. No rule that stands ends while the clock is in doubt. What has ended leaves the
  file an hour later, as far as the disk lets it: a start with a wrong clock cannot let it stand again, nor
  does a clock that is set right within the hour lose a rule.
* Beside it a second file says who has added and cancelled what, and what has ended by itself: the last ones.
* A process takes up what another has changed within a second, and at once when a page of it is asked for.
* A file that cannot be read or understood ends a start: mail that a rule holds would leave. While the server
  runs it is logged, and the rules that stood before stay.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Protocol

from mqcd.config.settings import Settings
from mqcd.core.errors import DecodeError, StoreDamaged, StoreUnavailable
from mqcd.core.events import format_time
from mqcd.core.ports import Clock
from mqcd.core.selecting.rules import SERVER, StandingRule
from mqcd.core.units import HOUR
from mqcd.daemon.rules.form import fields_of, parse_rule
from mqcd.disk.durable import Disk, describe
from mqcd.disk.locks import holding

log = logging.getLogger("mqcd.daemon")

FILE = Path("rules", "rules.json")
"""In the queue's root; not in the root itself, where a start removes temporary files."""
HISTORY = "history.jsonl"
"""Beside it."""
MOST_HISTORY = 1000
"""Lines of that file."""
VERSION = 1
"""Of the file's form."""
MOST_RULES = 1000
LOOK_MS = 1000
CLEAR_MS = HOUR
"""Monotonic time for which a rule has ended before it leaves the file."""
_LOCK_MS = 20
"""Pause before the lock is tried again."""

Rules = Mapping[str, StandingRule]
"""By id, in order of age."""
Edit = Callable[[dict[str, StandingRule]], object]
"""A change of the rules in place. May raise DecodeError: then nothing changes."""
_Stamp = tuple[int, int, int] | None


class Apply(Protocol):
    """Lets other rules stand."""

    def __call__(self, before: Rules, after: Rules) -> Awaitable[None]: ...


class RuleBook:
    """The rules in effect, those of one process."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        may_expire: Callable[[], bool],
        apply: Apply,
        disk: Disk | None = None,
    ) -> None:
        """`may_expire`: whether the clock can be believed."""
        self.path = path
        self._clock = clock
        self._may_expire = may_expire
        self._apply = apply
        self._disk = disk or Disk()
        self._stamp: _Stamp = None
        self._file: Rules = {}
        """What the file has."""
        self._fault = ""
        """Why the file could not be read when it was looked at last."""
        self._ended: Mapping[str, int] = {}
        """What has ended and is in the file still, since when, monotonic, ms."""
        self._kept: Set[str] = frozenset()
        """What has ended, and could not be taken out of the file."""
        self._pending: dict[str, StandingRule] = {}
        """Rules in effect that are not in the file yet."""
        self._parsed: Mapping[str, tuple[dict[str, Any], StandingRule]] = {}
        """What was read last, by id: to parse a condition takes longer than to see that it is the same."""
        self._turn = asyncio.Lock()
        self.rules: Rules = {}
        """What stands."""

    # ------------------------------------------------------------ what stands

    async def load(self) -> None:
        """At a start, when `may_expire` is known. Raises StoreDamaged."""
        try:
            self._stamp, self._file = await asyncio.to_thread(self._read)
        except (OSError, DecodeError) as error:
            text = "the rules cannot be read, and mail that they hold would leave"
            remedy = "mend the file, or move it away to start without rules"
            raise StoreDamaged(f"{text}: {_naming(self.path, error)}; {remedy}") from error
        await self._take(self._file)

    async def run(self) -> None:
        """Keep what stands up to date, for ever."""
        while True:
            await self._clock.sleep(LOOK_MS)
            await self.look()
            now = self._clock.monotonic()
            ended = self._file.keys() - self.rules.keys()
            self._ended = {name: self._ended.get(name, now) for name in ended}
            if any(now - since >= CLEAR_MS for since in self._ended.values()):
                await self._clear(ended)

    async def _clear(self, ended: Set[str]) -> None:
        try:
            await self.change(lambda _rules: None)
        except (StoreUnavailable, DecodeError) as error:
            if ended != self._kept:
                log.warning("rules that have ended may stand again after a restart: %s", error)
            self._kept = ended

    async def look(self) -> None:
        """Take up what has changed or ended."""
        async with self._turn:
            try:
                if _stamp_of(self.path) != self._stamp:
                    self._stamp, self._file = await asyncio.to_thread(self._read)
                self._fault = ""
            except (OSError, DecodeError) as error:
                fault = _naming(self.path, error)
                if fault != self._fault:
                    log.error("the rules that stood before stay: %s", fault)
                self._fault = fault
            await self._take(self.rules)

    async def _take(self, standing: Rules) -> None:
        """`standing`: those that do not end while the clock is in doubt."""
        now, staying = self._clock.now(), () if self._may_expire() else standing
        together = {**self._file, **self._pending}
        after = {name: rule for name, rule in together.items() if not rule.ended(now) or name in staying}
        self._pending = {name: rule for name, rule in self._pending.items() if name in after}
        if after != self.rules:
            before, self.rules = self.rules, after
            await self._apply(before, after)

    # ------------------------------------------------------------ changes

    async def change(self, edit: Edit, by: str = SERVER) -> None:
        """Change the file, and take it up; `by` is its author. Raises StoreUnavailable, DecodeError."""
        try:
            while not await asyncio.to_thread(self._change, edit, by):
                await self._clock.sleep(_LOCK_MS)
        except OSError as error:
            raise StoreUnavailable(f"the rules cannot be recorded: {describe(error)}") from error
        await self.look()

    async def add_now(self, *added: StandingRule) -> None:
        """Let rules stand at once, before they are in the file. A failure of the disk is logged: until they
        are written, they do not survive a restart."""
        by_id = {rule.id: rule for rule in added}
        self._pending |= by_id
        await self.look()
        try:
            await self.change(lambda rules: rules.update(by_id))
        except (StoreUnavailable, DecodeError) as error:
            log.error("%s and %d others stand until the server stops: %s", added[0], len(added) - 1, error)
        else:
            self._pending = {name: rule for name, rule in self._pending.items() if name not in by_id}

    def forget(self, name: str) -> None:
        """A rule that is not in the file stands no longer."""
        self._pending.pop(name, None)

    def _change(self, edit: Edit, by: str) -> bool:
        """False when another process changes it just now."""
        disk, directory = self._disk, self.path.parent
        disk.mkdir(directory)
        with holding(disk, directory) as ours:
            if not ours:
                return False
            _, read = self._read()
            rules = dict(read)
            edit(rules)
            now = self._clock.now()
            kept = [rule for rule in rules.values() if not rule.ended(now) or rule.id in self.rules]
            if len(kept) > MOST_RULES:
                raise DecodeError(f"{MOST_RULES} rules stand already: cancel some")
            if kept != [*read.values()]:
                disk.replace_file(self.path, [encode(kept)])
                self._note(read, {rule.id: rule for rule in kept}, by)
        return True

    def _note(self, before: Rules, after: Rules, by: str) -> None:
        """Keep who has changed what. A disk that does not take it costs these lines."""
        now = self._clock.now()
        notes: list[dict[str, object]] = [
            {"event": "added", "by": rule.by, "rule": fields_of(rule)}
            for name, rule in after.items()
            if name not in before
        ]
        for name, rule in before.items():
            if name not in after:
                ended = rule.ended(now) and name not in self.rules
                end = {"event": "ended"} if ended else {"event": "cancelled", "by": by}
                notes.append({**end, "rule": fields_of(rule)})
        path = self.path.with_name(HISTORY)
        try:
            old = self._disk.read_file(path).splitlines(keepends=True) if self._disk.exists(path) else []
            lines = [json.dumps({"at": format_time(now), **note}).encode() + b"\n" for note in notes]
            self._disk.replace_file(path, [*old, *lines][-MOST_HISTORY:])
        except OSError as error:
            log.warning("who has changed the rules is not recorded: %s", describe(error))

    def _read(self) -> tuple[_Stamp, Rules]:
        stamp = _stamp_of(self.path)
        if stamp is None:
            return None, {}
        known, now = self._parsed, self._clock.now()
        parsed: dict[str, tuple[dict[str, Any], StandingRule]] = {}
        for fields in decode(self._disk.read_file(self.path)):
            before = known.get(str(fields.get("id")))
            same = before is not None and before[0] == fields
            rule = before[1] if before is not None and same else parse_rule(fields, now)
            parsed[rule.id] = fields, rule
        self._parsed = parsed
        return stamp, {name: rule for name, (_, rule) in parsed.items()}


def encode(rules: Sequence[StandingRule]) -> bytes:
    """The file's content, a rule a line."""
    lines = ",\n".join(json.dumps(fields_of(rule)) for rule in rules)
    return f'{{"version": {VERSION}, "rules": [\n{lines}\n]}}\n'.encode()


def decode(content: bytes) -> list[dict[str, Any]]:
    """The objects of what `encode` made. Raises DecodeError."""
    try:
        whole = json.loads(content)
        version, listed = whole["version"], [dict(each) for each in whole["rules"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DecodeError("this is no file of rules") from error
    if version != VERSION:
        raise DecodeError(f"version {version} of the form of rules is not known to this program")
    return listed


def read_rules(path: Path, now: int) -> list[StandingRule]:
    """The rules of a file that stand, without a server. Raises StoreDamaged."""
    try:
        listed = [] if _stamp_of(path) is None else decode(path.read_bytes())
        found = [parse_rule(each, now) for each in listed]
    except (OSError, DecodeError) as error:
        raise StoreDamaged(f"the rules cannot be read: {_naming(path, error)}") from error
    return [rule for rule in found if not rule.ended(now)]


def rules_path(settings: Settings) -> Path:
    """Where the rules of all shards are."""
    return settings.ops.control.rules or settings.queue.rootpath / FILE


def _naming(path: Path, error: Exception) -> str:
    return describe(error) if isinstance(error, OSError) else f"{path}: {error}"


def _stamp_of(path: Path) -> _Stamp:
    """None where there is no file. Raises OSError where that cannot be found out."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return None
    return there.st_ino, there.st_mtime_ns, there.st_size
