"""Contents of the messages of a snapshot, from the journal or from the spool, in chunks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from mqcd.core.model import Recipient
from mqcd.core.queueing.spid import is_several
from mqcd.disk.durable import Disk
from mqcd.queue.format import filenames
from mqcd.queue.format.frame import Locator
from mqcd.queue.reading.live_index import SegmentIndex
from mqcd.queue.reading.races import check_same, open_segment
from mqcd.queue.spool.silos import Silos

_CHUNK = 1 << 18


class Contents:
    """Of one snapshot."""

    def __init__(self, disk: Disk, silos: Silos, segments: Mapping[int, SegmentIndex]) -> None:
        """`segments`: those of the journal, by number."""
        self._disk = disk
        self._silos = silos
        self._segments = segments
        self._records: dict[int, tuple[SegmentIndex, int]] | None = None
        """Of messages whose content is in the journal, by SPID: the segment and ordinal of a record."""

    def read(self, spid: int, recipient: Recipient | None) -> Iterator[bytes]:
        """The octets of a message, see `Snapshot.content`. Raises OSError, StoreBusy."""
        content = self._in_journal(spid)
        if content is not None:
            return self._from_segment(content)
        return self._from_spool(spid, recipient)

    def _in_journal(self, spid: int) -> Locator | None:
        """Where the content lies in the journal, if it does."""
        if self._records is None:
            # At the first question only, for most readers want no contents.
            self._records = {
                int(line[:16], 16): (index, ordinal)
                for index in self._segments.values()
                for part in index.lines(self._disk)
                for ordinal, line, _ in part
                if index.content(ordinal).segment in self._segments
            }
        found = self._records.get(spid)
        return found[0].content(found[1]) if found is not None else None

    def _from_segment(self, content: Locator) -> Iterator[bytes]:
        segment = self._segments[content.segment].segment
        fd = open_segment(self._disk, segment)
        try:
            for offset in range(content.offset, content.offset + content.length, _CHUNK):
                data = self._disk.pread(fd, min(_CHUNK, content.offset + content.length - offset), offset)
                check_same(self._disk, fd, segment)
                yield data
        finally:
            self._disk.close(fd)

    def _from_spool(self, spid: int, recipient: Recipient | None) -> Iterator[bytes]:
        file = filenames.number(spid) if recipient is None else filenames.number_of(recipient)
        if recipient is None and is_several(spid):
            file = self._any_name(spid)
        fd = self._disk.open(self._silos.file(file), os.O_RDONLY)
        try:
            offset = 0
            while data := self._disk.pread(fd, _CHUNK, offset):
                yield data
                offset += len(data)
        finally:
            self._disk.close(fd)

    def _any_name(self, spid: int) -> int:
        """The file number of any of a content's names."""
        shared = filenames.number(spid)
        silo = self._silos.file(shared).parent
        found = (filenames.parse(name) for name in self._disk.names(silo) if name.endswith(".msg"))
        return next((file for file in found if file is not None and filenames.spid_of(file) == spid), shared)
