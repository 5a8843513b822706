"""An authority of the test's own and the certificates that it signs, by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

_CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Authority:
    """Signs certificates; `certificate` is what to trust."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.certificate = directory / "authority.pem"
        self._key = directory / "authority.key"
        _run("req", "-x509", *_CURVE, "-days", "2", "-subj", "/CN=authority.test",
             "-keyout", str(self._key), "-out", str(self.certificate))  # fmt: skip

    def sign(self, name: str, *alternatives: str, days: int = 2) -> Path:
        """A file with key and certificate for these subject alternative names (`IP:...`, `DNS:...`), good for
        so many days from now; below 0 it has expired."""
        request, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        key, signed, both = (self._directory / f"{name}.{kind}" for kind in ("key", "crt", "pem"))
        extensions.write_text(f"subjectAltName={','.join(alternatives)}\n")
        _run("req", *_CURVE, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request))
        _run("x509", "-req", "-days", str(days), "-in", str(request), "-CA", str(self.certificate),
             "-CAkey", str(self._key), "-CAcreateserial", "-extfile", str(extensions),
             "-out", str(signed))  # fmt: skip
        both.write_bytes(key.read_bytes() + signed.read_bytes())
        return both


def _run(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
