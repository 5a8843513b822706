"""Where advice lies between the analytics and the server: proposed, in effect, taken back. Needs no Spark.

* `propose` puts down what was found last; a person may edit the file before it is applied.
* `apply` puts what is proposed in effect. It replaces what was, but for pieces that came in effect after the
  proposal was made; what was cancelled, and what has ended, is left out.
* `accept` puts one piece of what is proposed in effect.
* `cancel` takes one piece back, out of what is in effect and out of what is proposed; until its end it is
  neither proposed nor applied again.

Each of them reads and writes under a lock on the directory: of two at once, commands or the page, the second
finds what the first has decided. Each file is written whole and durable, or not at all; the server reads the
one in effect by itself. Root leaves files that the owner of the directory above can read.
Raises BadConfiguration for a file that does not read, StoreBusy where others decide for seconds, OSError for
one that cannot be written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mqcd.config.advice import Advice, Shaping, Suppression, comparable, document, read_advice
from mqcd.core.errors import MqcdError, StoreBusy
from mqcd.core.value import value
from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.disk.locks import holding

PROPOSED, ACTIVE, CANCELLED = "proposed", "active", "cancelled"
_DIRECTORY_MODE = 0o750
_PATIENCE_S = 10.0
"""What another decision may take: it writes and syncs up to three files."""

Piece = Suppression | Shaping


class NoSuchPiece(MqcdError):
    """No piece of advice has this id. `mqcd pipeline advise --list` shows those there are."""


@value
class Applied:
    """What `apply` did: pieces that are new in effect, that stay, and that are no longer in effect."""

    added: int
    kept: int
    dropped: int


class Desk:
    """The advice files of one directory, at one moment."""

    def __init__(
        self, directory: Path, now: int, disk: Disk | None = None, patience: float = _PATIENCE_S
    ) -> None:
        """`now`: ms; what has ended by then counts for nothing. `patience`: s, for another's decision."""
        self._directory = directory
        self._now = now
        self._disk = disk or Disk()
        self._patience = patience

    def path(self, kind: str) -> Path:
        return self._directory / f"{kind}.xml"

    def read(self, kind: str) -> Advice:
        """What a file holds that has not ended; nothing where there is none."""
        path = self.path(kind)
        if not path.exists():
            return Advice()
        return read_advice(path).keeping(lambda piece: piece.until > self._now)

    def pieces(self) -> Iterator[tuple[str, Piece]]:
        """Every piece with the kind of its file: what is in effect first."""
        for kind in (ACTIVE, PROPOSED, CANCELLED):
            for piece in self.read(kind).pieces():
                yield kind, piece

    def propose(self, advice: Advice) -> Advice:
        """Put down a new proposal, without what was cancelled. Returns what it holds."""
        if not self._directory.exists():
            self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            _give(self._directory, self._directory.parent)
        with self._alone():
            proposal = replace(self._without_cancelled(advice), made=self._now)
            self._write(PROPOSED, proposal)
            return proposal

    def apply(self) -> Applied:
        """Put the proposal in effect. Raises NoSuchPiece where nothing was proposed."""
        with self._alone():
            if not self.path(PROPOSED).exists():
                raise _nothing(self.path(PROPOSED))
            proposal = self._without_cancelled(self.read(PROPOSED))
            active = self.read(ACTIVE)
            proposed = {piece.id for piece in proposal.pieces()}
            newer = active.keeping(lambda piece: piece.since > proposal.made and piece.id not in proposed)
            merged = Advice(
                made=self._now,
                suppressions={**newer.suppressions, **proposal.suppressions},
                shapings=newer.shapings + proposal.shapings,
            )
            self._write(ACTIVE, merged)
            before = {piece.id for piece in active.pieces()}
            after = {piece.id for piece in merged.pieces()}
            return Applied(added=len(after - before), kept=len(after & before), dropped=len(before - after))

    def accept(self, name: str) -> Piece:
        """Put one proposed piece in effect. Raises NoSuchPiece."""
        with self._alone():
            proposal = self._without_cancelled(self.read(PROPOSED))
            found = [piece for piece in proposal.pieces() if piece.id == name]
            if not found:
                raise NoSuchPiece(f"{name}: no proposed piece has this id; `--list` shows them")
            self._write(ACTIVE, replace(_with(self.read(ACTIVE), found[0]), made=self._now))
            return found[0]

    def cancel(self, name: str) -> Piece:
        """Take a piece back. Raises NoSuchPiece."""
        with self._alone():
            found = [piece for kind, piece in self.pieces() if piece.id == name and kind != CANCELLED]
            if not found:
                raise NoSuchPiece(f"{name}: no piece in effect or proposed has this id; `--list` shows them")
            cancelled = self.read(CANCELLED)
            piece = replace(found[0], until=max(each.until for each in found))
            # First what keeps it from coming back: a crash in between cancels a little, and never too little.
            self._write(CANCELLED, replace(_with(cancelled, piece), made=self._now))
            for kind in (ACTIVE, PROPOSED):
                if self.path(kind).exists():
                    advice = self.read(kind)
                    self._write(kind, replace(advice.keeping(lambda each: each.id != name), made=advice.made))
            return piece

    def _without_cancelled(self, advice: Advice) -> Advice:
        cancelled = {piece.id for piece in self.read(CANCELLED).pieces()}
        return advice.keeping(lambda piece: piece.id not in cancelled)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else decides while the block lasts. Raises NoSuchPiece where there is nothing, StoreBusy."""
        if not self._directory.exists():
            raise _nothing(self._directory)
        with holding(self._disk, self._directory, self._patience) as ours:
            if not ours:
                raise StoreBusy(f"another decision is changing the files in {self._directory}: try again")
            yield

    def _write(self, kind: str, advice: Advice) -> None:
        directory, disk = self._directory, self._disk
        path = self.path(kind)
        temp = path.with_name(path.name + TEMP_SUFFIX)
        disk.write_temp(temp, document(advice))
        _give(temp, directory)
        disk.rename(temp, path)
        disk.sync_dir(directory)


def _nothing(path: Path) -> NoSuchPiece:
    return NoSuchPiece(f"nothing is proposed: {path} is not there; `mqcd pipeline advise` makes it")


def _with(advice: Advice, piece: Piece) -> Advice:
    others = advice.keeping(lambda each: each.id != piece.id)
    if isinstance(piece, Shaping):
        return replace(others, shapings=(*others.shapings, piece))
    return replace(others, suppressions={**others.suppressions, comparable(piece.recipient): piece})


def _give(path: Path, like: Path) -> None:
    """Root's files have the owner of the directory that they lie in: the server runs as that one."""
    if os.geteuid() == 0:
        there = like.stat()
        os.chown(path, there.st_uid, there.st_gid)
