"""An import from beginning to end: read and check all of the source, then take it in at once.

Nothing of the queue is touched before the source has been read to its end, and nothing at all when there
is nothing new in it. What was brought once is not brought again: the queue keeps a list (`admission`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import field
from pathlib import Path

from mqcd.core.errors import StoreUnavailable
from mqcd.core.ports import Clock, Observer
from mqcd.core.progress import Progress, no_progress
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.queue.admin.ownership import owned
from mqcd.queue.admin.transfer.admission import admit, known_keys
from mqcd.queue.admin.transfer.letters import Tree
from mqcd.queue.disk.vacancy import check_vacant
from mqcd.queue.manifest import log as manifests
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.recovery.imports import name_events, pending_events
from mqcd.queue.workers import Workers

Read = Callable[[Set[str]], Tree]
"""Reads the source; gets the keys of what was brought before."""


@value(kw_only=False)
class Outcome:
    """What an import did, or would do."""

    tree: Tree
    imported: int
    """Recipients."""


@value
class Import:
    """One import: where to, and what from."""

    options: Options
    clock: Clock
    observer: Observer
    kind: str
    """Goes into its name in the MANIFEST: `mailismus` or `eml`."""
    read: Read
    roots: Sequence[Path] = ()
    """Of the source, if it is a queue: it must be another one."""
    progress: Progress = no_progress
    decide: Callable[[], None] = lambda: None
    """Called right before the edit that takes it all in: what raises later than that cannot undo it."""
    disk: Disk = field(default_factory=Disk)
    workers: Workers | None = None

    def rehearse(self) -> Outcome:
        """What `run` would do. Needs no lock and changes nothing. Raises what `run` raises."""
        tree = self.read(self._known(self._state()))
        return Outcome(tree, tree.recipients)

    async def run(self) -> Outcome:
        """Do it. Raises StoreBusy, StoreDamaged, StoreUnavailable, OSError; then nothing was taken in."""
        before = self._state()
        tree = self.read(self._known(before))
        cut_off = before is not None and pending_events(self.disk, self.options, before)
        if not tree.letters and not cut_off:
            return Outcome(tree, 0)
        async with owned(self.options, self.clock, self.observer, self.disk, self.workers) as ours:
            state = ours.manifest.state
            name_events(self.disk, self.options, state)
            if state.imports != (before.imports if before is not None else ()):
                # Another import came between the look and the lock.
                tree = self.read(self._known(state))
            return Outcome(tree, admit(ours, self.kind, tree, self.progress, self.decide))

    def _state(self) -> ManifestState | None:
        """What the MANIFEST says; None for a queue that is still to be made."""
        settings = self.options.settings
        state = manifests.read(self.disk, settings.rootpath / "MANIFEST")
        if state is None:
            check_vacant(self.disk, settings.rootpath)
        own = [settings.rootpath.resolve(), settings.spool.rootpath.resolve()]
        for root in self.roots:
            if root.resolve() in own:
                text = "the queue's own: name the one that the mail is to come from, and ours with --var"
                raise StoreUnavailable(f"{root} is {text}")
        return state

    def _known(self, state: ManifestState | None) -> Set[str]:
        return known_keys(self.disk, self.options.settings.rootpath, state) if state is not None else set()
