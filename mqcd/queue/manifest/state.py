"""What the MANIFEST says, and what an edit changes of it. Pure; `manifest.log` has it on disk."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import Any

from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.core.queueing.spid import SILOS
from mqcd.core.value import value

MOST_SILOS = 256


@value
class ClusterState:
    """What the MANIFEST knows of one cluster; REPLACE frames of the journal say it, too.

    A further field needs a default, for lines without it are read; it is an int, unless `manifest.log._edit`
    exempts it by name.
    """

    name: str
    """Path below the queue root, such as `deferred/T1795187940/M12-0.mqc`."""
    size: int
    """Octets of the file."""
    cursor: int
    """Octet of the first record whose location is still here."""
    left: int
    """Records from the cursor on."""
    octets: int
    """Sum of the sizes of their messages."""
    received: int
    """When the earliest of its messages was accepted, ms."""
    due: int = 0
    """Earliest due time from the cursor on, ms."""
    due_last: int = 0
    """Latest due time, ms."""
    tenant: str = ""
    """Whose mail it holds; "" = that of tenants with little, of none, or of any."""

    @property
    def area(self) -> Area:
        """The area that its directory says."""
        return Area(self.name.split("/", 1)[0])


@value
class KeyFile:
    """What the MANIFEST knows of a file of idempotency keys."""

    name: str
    """Path below the queue root, such as `keys/K12.keys`."""
    records: int
    newest: int
    """When the newest of them was used, s."""


@dataclass(slots=True)
class ManifestState:
    """What all edits so far amount to."""

    writer: str = ""
    """The newest mqcd that has written to the queue; "" = one that did not say so."""
    epoch: int = 0
    first_live: int = 1
    """The first segment that is part of the queue."""
    last_segment: int = 0
    """A segment that is known to have existed: if it is not below first_live, it must be there."""
    last_size: int = 0
    """Octets of its file, at least."""
    exported: int = 0
    """Segments up to this one have their event file."""
    sequence: int = 1
    """No sequence below it is free; all of them are durable, or are left out for what was lost."""
    spid: int = 0
    """No SPID up to it is free."""
    clock: int = 0
    """Wall time that was last believed, ms."""
    edit: int = 0
    totals: Counter[Verb] = field(default_factory=Counter)
    """Transitions in all segments below first_live."""
    clusters: dict[str, ClusterState] = field(default_factory=dict)
    replaced: int = 0
    """The clusters here are those behind REPLACE frames up to this sequence."""
    silos: int = SILOS
    """Directories of the spool; never another number."""
    imports: tuple[str, ...] = ()
    """Imports that are part of the queue; what each brought is listed in `queue/imports/<id>`."""
    keys: dict[str, KeyFile] = field(default_factory=dict)
    """The oldest first."""
    dropped: int = 0
    """Octets at the end of the file that are no edit: one that was cut off."""

    def after(self, edit: Edit) -> ManifestState:
        """This state with an edit taken in; this one stays."""
        following = replace(
            self, clusters=dict(self.clusters), totals=Counter(self.totals), keys=dict(self.keys)
        )
        following.apply(edit)
        return following

    def apply(self, edit: Edit) -> None:
        """Take an edit in."""
        for name in _SCALARS:
            value = getattr(edit, name)
            if value is not None:
                setattr(self, name, value)
        if edit.totals is not None:
            self.totals = Counter({Verb(verb): count for verb, count in edit.totals.items()})
        for cluster in edit.add:
            self.clusters[cluster.name] = cluster
        for name in edit.end:
            self.clusters.pop(name, None)
            self.keys.pop(name, None)
        for file in edit.keys:
            self.keys[file.name] = file
        self.imports += edit.imports
        self.edit += 1

    def whole(self) -> Edit:
        """The edit that makes this state from nothing."""
        scalars: dict[str, Any] = {name: getattr(self, name) for name in _SCALARS}
        if self.silos == SILOS:
            # A queue with the usual number is one that older programs read.
            scalars["silos"] = None
        return Edit(
            **scalars,
            totals={str(verb): count for verb, count in self.totals.items()},
            add=tuple(self.clusters.values()),
            imports=self.imports,
            keys=tuple(self.keys.values()),
        )


@value
class Edit:
    """A change; None and empty leave as is. A cluster that is added again replaces its state.

    A further field is an int, or None (`manifest.log._edit` checks that), and has the name of a field of
    `ManifestState`; another type has a place of its own in `apply`, `whole`, `_SCALARS`, and in
    `manifest.log`. Programs that do not know it refuse the queue, so leave it None where nothing needs it
    (`silos`).
    """

    writer: str | None = None
    epoch: int | None = None
    first_live: int | None = None
    last_segment: int | None = None
    last_size: int | None = None
    """Goes with `last_segment`."""
    exported: int | None = None
    sequence: int | None = None
    spid: int | None = None
    clock: int | None = None
    replaced: int | None = None
    silos: int | None = None
    totals: dict[str, int] | None = None
    add: tuple[ClusterState, ...] = ()
    end: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    keys: tuple[KeyFile, ...] = ()
    """Files of keys that are added; `end` names files that are not part of the queue any more."""


_SCALARS = tuple(
    item.name for item in fields(Edit) if item.name not in ("totals", "add", "end", "imports", "keys")
)
"""Fields of an edit that replace the field of the same name in the state."""
