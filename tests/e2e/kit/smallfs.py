"""A file system of a few megabytes in place of a directory, to be filled and emptied by a test.

It is a tmpfs in a mount namespace of the test's main thread and of the processes that it starts from
there: nobody else sees it, and it is gone with them however they end. Where nothing may be mounted, as in
many a container, /dev/shm is taken if it is small.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_CLONE_NEWNS = 0x00020000
_SHM = Path("/dev/shm")
_SMALL = 256 << 20


class SmallFilesystem:
    """One at `place`, which is made."""

    def __init__(self, place: Path, megabytes: int) -> None:
        self._filler = place / "filler"
        self._shm: Path | None = None
        if own_namespace():
            place.mkdir(parents=True)
            size = f"size={megabytes}m,mode=0700"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "mqcd-test", str(place)], check=True)
        elif _SHM.is_dir() and shutil.disk_usage(_SHM).total <= _SMALL:
            self._shm = Path(tempfile.mkdtemp(dir=_SHM))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(self._shm)
        else:
            pytest.skip("nothing can be mounted here, and /dev/shm is not small")

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as filler:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def empty(self) -> None:
        self._filler.unlink()

    def remove(self) -> None:
        """Leave nothing behind where it is not the namespace that goes."""
        if self._shm is not None:
            shutil.rmtree(self._shm)


@functools.cache
def own_namespace() -> bool:
    """Whether this thread has mounts of its own from now on."""
    if os.geteuid() != 0 or ctypes.CDLL(None).unshare(_CLONE_NEWNS) != 0:
        return False
    return subprocess.run(["mount", "--make-rprivate", "/"], check=False).returncode == 0
