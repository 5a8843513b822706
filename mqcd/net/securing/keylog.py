"""The exporter secret of a TLS 1.3 handshake (RFC 8446, 7.1), from which tls-exporter is derived.

The ssl module exports no keying material; it writes a connection's secrets to a key log. Here the log is a
file in memory, of this process alone, which is emptied as soon as a secret is read from it.
"""

from __future__ import annotations

import os
import sys
import weakref

_LABEL = b"EXPORTER_SECRET"
_MOST = 65536


class KeyLog:
    """The key log of one listener's contexts, in the process that made it. Linux only (memfd_create(2))."""

    def __init__(self) -> None:
        """Raises OSError."""
        if sys.platform != "linux":
            raise OSError("no file in memory here")
        self._descriptor = os.memfd_create("tls-key-log")
        self.path = f"/proc/self/fd/{self._descriptor}"
        """For `SSLContext.keylog_filename`."""
        weakref.finalize(self, os.close, self._descriptor)

    def take(self) -> bytes:
        """The secret that was logged last, since the last call; b"" = none."""
        logged = os.pread(self._descriptor, _MOST, 0)
        if logged:
            os.ftruncate(self._descriptor, 0)
        for line in reversed(logged.splitlines()):
            label, _, rest = line.partition(b" ")
            if label == _LABEL:
                return bytes.fromhex(rest.rpartition(b" ")[2].decode())
        return b""
