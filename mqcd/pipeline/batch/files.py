"""Files of the table `recipients`: those there are, and which of them a revision replaces. Pure.

A revision folds strangers with what done and aged files hold of them (`batch.recipients`, with an example):

| files | which | it reads them | afterwards |
|---|---|---|---|
| fresh | made by this batch, not done: the strangers are there | whole | replaced |
| finished | the others of the strangers' days | to see whose rows they have | stay |
| touched | finished ones with rows of strangers | whole | replaced |
| all others | | | stay |

What is replaced goes when the batch is committed, or at once if the batch has made it itself.
Where none is touched, nothing is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mqcd.core.value import value
from mqcd.pipeline.store.layout import DONE, day_of, is_state


@value
class RecipientFiles:
    """Files of the table `recipients`, by path."""

    committed: Sequence[str] = ()
    """Of batches before this one."""
    staged: Sequence[str] = ()
    """Made by this batch."""

    def where(self, wanted: Callable[[str], bool]) -> RecipientFiles:
        """The wanted ones."""
        return RecipientFiles(
            committed=list(filter(wanted, self.committed)), staged=list(filter(wanted, self.staged))
        )

    def without(self, others: RecipientFiles) -> RecipientFiles:
        """All but the others."""
        left_out = {*others.committed, *others.staged}
        return self.where(lambda path: path not in left_out)

    def adding(self, made: Sequence[str]) -> RecipientFiles:
        """With further ones that this batch has made."""
        return RecipientFiles(committed=self.committed, staged=[*self.staged, *made])

    def __bool__(self) -> bool:
        return bool(self.committed or self.staged)


@value
class Revision:
    """What a revision does with the files that there are; see the table above."""

    fresh: RecipientFiles
    finished: RecipientFiles

    def replaced(self, touched: RecipientFiles) -> RecipientFiles:
        """What its results take the place of. The staged ones are to be discarded."""
        return RecipientFiles(
            committed=touched.committed, staged=[*touched.staged, *self.fresh.staged] if touched else ()
        )


def plan_revision(files: RecipientFiles, days: Collection[str]) -> Revision:
    """Plan to look for strangers of these days."""
    fresh = RecipientFiles(staged=[path for path in files.staged if not is_state(path, DONE)])
    finished = files.without(fresh).where(lambda path: day_of(path) in days)
    return Revision(fresh=fresh, finished=finished)
