"""TLS of one listener: its certificates by name (SNI), exchanged while it runs, and its session tickets.

* All handshakes begin with one context, which lives as long as the listener. It has no certificate, but the
  keys of the tickets: sessions resume after `use`, and in each process that is forked from its maker.
* The client's SNI chooses the certificate: exact name, then `*.` in the place of the first label, else the
  first certificate. A name that is not known is no error: mail servers ask for any.
* With `trust` clients are asked for a certificate. They need none, but one that does not chain to `trust`
  fails the handshake. Other `trust` means new ticket keys: a resumed session is not verified again.
* With `exports` the exporter secrets of TLS 1.3 are known (`keylog`). The key log is opened at the first
  handshake, so that each forked process has its own.

Failures: BadTlsFile.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mqcd.core.errors import DecodeError, MqcdError
from mqcd.core.smtp.x509 import dns_names
from mqcd.core.value import value
from mqcd.net.securing.keylog import KeyLog
from mqcd.net.tls import file_fault

log = logging.getLogger(__name__)

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class BadTlsFile(MqcdError):
    """A file cannot be loaded; `setting` is the one that names it: certfile, keyfile or trust."""

    def __init__(self, setting: str, text: str) -> None:
        super().__init__(text)
        self.setting = setting


@value
class ServerTlsTerms:
    """The files of a listener, PEM."""

    certificates: Sequence[Path]
    """Each with its chain; the first is for clients that name no host, or one that none is for."""
    keys: Sequence[Path] = ()
    """One for each certificate; none = each is in the certificate's file."""
    trust: Path | None = None
    """What certificates of clients must chain to; None = clients are not asked for any."""
    exports: bool = False
    """Whether logins may be bound to connections by tls-exporter."""


class _Context(ssl.SSLContext):
    """With one certificate."""

    certificate: bytes = b""
    """In DER."""


class Certificates:
    """The loaded files of a listener."""

    def __init__(self, terms: ServerTlsTerms) -> None:
        """Raises BadTlsFile."""
        self.terms = terms
        self.stamps = _stamps(terms)
        self.asks_client = terms.trust is not None
        self._by_name: dict[str, _Context] = {}
        self.contexts: list[_Context] = []
        for number, certificate in enumerate(terms.certificates):
            key = terms.keys[number] if terms.keys else certificate
            context = _load(certificate, key, terms.trust)
            self.contexts.append(context)
            for name in _names(certificate, context):
                self._by_name.setdefault(name, context)

    @property
    def changed(self) -> bool:
        """Whether a file is another one now."""
        return any(now not in ((), then) for now, then in zip(_stamps(self.terms), self.stamps, strict=True))

    def find(self, name: str | None) -> ssl.SSLContext:
        """The context for a client that asks for this host."""
        wanted = (name or "").lower().rstrip(".")
        parent = wanted.partition(".")[2]
        return self._by_name.get(wanted) or self._by_name.get(f"*.{parent}") or self.contexts[0]


class ListenerTls:
    """One listener's, in every process that accepts for it; without TLS until `use`."""

    def __init__(self) -> None:
        self._base = self._make_base()
        self._certificates: Certificates | None = None
        self._trusted: object = None
        self._renewed = False
        self._key_log: KeyLog | None = None

    def load(self, terms: ServerTlsTerms) -> Certificates:
        """The files, those in use if they are the same. Raises BadTlsFile."""
        now = self._certificates
        return now if now is not None and now.terms == terms and not now.changed else Certificates(terms)

    def use(self, certificates: Certificates) -> None:
        """For handshakes that begin from now on."""
        before, self._certificates = self._certificates, certificates
        if before is certificates:
            return
        if before is not None:
            ours = [each.certificate for each in certificates.contexts]
            self._renewed = self._renewed or ours != [each.certificate for each in before.contexts]
        trusted = certificates.terms.trust, certificates.stamps[-1]
        if self._trusted not in (None, trusted):
            self._base = self._make_base()
        self._trusted = trusted
        self._base.verify_mode = ssl.CERT_OPTIONAL if certificates.asks_client else ssl.CERT_NONE

    def begin(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        """The server's end of a new connection."""
        return self._base.wrap_bio(incoming, outgoing, server_side=True)

    def certificate(self, connection: ssl.SSLObject) -> bytes:
        """The certificate that the client knows of this connection, in DER; b"" where that is not certain:
        the session is resumed, and certificates have been exchanged."""
        context = connection.context
        if not isinstance(context, _Context) or (self._renewed and connection.session_reused):
            return b""
        return context.certificate

    def exporter_secret(self) -> bytes:
        """That of the handshake whose step was the last; b"" where there is none (yet)."""
        return b"" if self._key_log is None else self._key_log.take()

    def _make_base(self) -> ssl.SSLContext:
        base = _new_context()
        base.sni_callback = self._choose
        return base

    def _choose(
        self, connection: ssl.SSLObject, name: str | None, base: ssl.SSLContext
    ) -> ssl.AlertDescription | None:
        if self._certificates is None:
            return ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR
        context = self._certificates.find(name)
        if self._certificates.terms.exports and not context.keylog_filename:
            self._log_keys(context)
        connection.context = context
        return None

    def _log_keys(self, context: ssl.SSLContext) -> None:
        try:
            self._key_log = self._key_log or KeyLog()
            context.keylog_filename = self._key_log.path
        except OSError as error:
            log.debug("no logins by tls-exporter: %s", error)


def peer_identities(connection: ssl.SSLObject) -> tuple[str, ...]:
    """The names in the client's verified certificate: mail addresses and host names among its alternative
    names, where there are none the common names. None without a certificate."""
    certificate: dict[str, Any] = dict(connection.getpeercert() or {})
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("email", "DNS")]
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    return tuple(names or (value for kind, value in subject if kind == "commonName"))


def _new_context() -> _Context:
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that asks for handshakes over and over would cost more than it pays.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _load(certificate: Path, key: Path, trust: Path | None) -> _Context:
    context = _new_context()
    pem = _read("certfile", certificate)
    _read("keyfile", key)
    begin = pem.find(_BEGIN)
    end = pem.find(_END, begin)
    try:
        # A key that asks for a passphrase must fail, not wait for someone at a terminal.
        context.load_cert_chain(certificate, key, password="")
        context.certificate = ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)])
    except (OSError, ValueError) as error:
        both = f"{certificate} with a key inside" if key == certificate else f"{certificate} and {key}"
        raise BadTlsFile(
            "certfile", f"{both} cannot be loaded as certificate and key (PEM): {file_fault(error)}"
        ) from error
    if trust is not None:
        _read("trust", trust)
        # The ssl module asks this context, not the one of the handshake, whether it may show a certificate.
        context.verify_mode = ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(cafile=trust)
        except OSError as error:
            text = f"{trust} cannot be loaded as certificates to trust (PEM): {file_fault(error)}"
            raise BadTlsFile("trust", text) from error
    return context


def _read(setting: str, path: Path) -> str:
    """Raises BadTlsFile. A pipe or a device is not opened: it might never answer."""
    why = "not a regular file"
    if path.is_file() or not path.exists():
        try:
            return path.read_text("ascii", "replace")
        except OSError as error:
            why = error.strerror or str(error)
    raise BadTlsFile(setting, f"{path} cannot be read: {why}")


def _names(certificate: Path, context: _Context) -> tuple[str, ...]:
    try:
        return dns_names(context.certificate)
    except DecodeError as error:
        raise BadTlsFile("certfile", f"{certificate}: {error}") from error


def _stamps(terms: ServerTlsTerms) -> list[tuple[int, ...]]:
    """What changes with each file, () where it cannot be seen; the last is that of `trust`."""
    return [_stamp(path) for path in (*terms.certificates, *terms.keys, terms.trust)]


def _stamp(path: Path | None) -> tuple[int, ...]:
    if path is None:
        return ()
    try:
        found = path.stat()
    except OSError:
        # Perhaps in a directory that only root may enter: what was loaded counts.
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size
