"""Our own TLS files: whether each that the configuration names can be loaded.

`mqcd check`, the start and SIGHUP look, so that a wrong path is an error there, and not mail that waits. The
start looks once privileges have been dropped: what only root can read is of no use to the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mqcd.config.problems import BadConfiguration, Remark
from mqcd.config.settings import DeliverSettings
from mqcd.core.ports import TlsTerms
from mqcd.daemon.places import line_of
from mqcd.net.tls import client_context, file_fault


def check_tls_files(deliver: DeliverSettings, conf: Path | None = None) -> None:
    """Load each; `conf` is the file for errors to name. Raises BadConfiguration with all that fail."""
    remarks = tuple(
        Remark(file=str(conf or ""), line=line_of(conf, path) if conf else 0, path=path, text=text)
        for path, text in _unusable(deliver)
    )
    if remarks:
        raise BadConfiguration(remarks)


def _unusable(deliver: DeliverSettings) -> Iterator[tuple[str, str]]:
    trust = deliver.client.trust
    if trust is not None:
        at = "mta/deliver/client/trust@file"
        if why := _unreadable(trust) or _unfit(TlsTerms(verify=True, trust=str(trust))):
            yield at, f"{trust} cannot be loaded as certificates to trust (PEM): {why}"
    for number, relay in enumerate(deliver.relays, start=1):
        certificate, key = relay.ssl.certfile, relay.ssl.keyfile
        if certificate is None:
            continue
        at = f"mta/deliver/relays/relay[{number}]/ssl@"
        if why := _unreadable(certificate):
            yield f"{at}certfile", f"{certificate} cannot be loaded as our certificate (PEM): {why}"
        elif key is not None and (why := _unreadable(key)):
            yield f"{at}keyfile", f"{key} cannot be loaded as our key (PEM): {why}"
        elif why := _unfit(TlsTerms(certificate=str(certificate), key=str(key or ""))):
            text = f"{certificate} and {key} cannot" if key else f"{certificate} with a key inside cannot"
            yield f"{at}certfile", f"{text} be loaded as our certificate and key (PEM): {why}"


def _unreadable(path: Path) -> str:
    """Why; "" = it can be read. A pipe or a device is not opened: it might never answer."""
    try:
        if path.exists() and not path.is_file():
            return "not a regular file"
        with path.open("rb"):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _unfit(terms: TlsTerms) -> str:
    """Why OpenSSL does not take the files; "" = it does."""
    try:
        client_context(terms)
    except OSError as error:
        return file_fault(error)
    return ""
