"""What the configuration names: our own TLS files, filters, files of users and blacklists.

`mqcd check`, the start and SIGHUP try each, so that a wrong name is an error there: neither does mail wait,
nor is a listener without the filter that it names. The start looks once privileges have been dropped: what
only root can read is of no use to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

from mqcd.config.kinds.overriding import given
from mqcd.config.settings import DeliverSettings, NetworkSettings, ServerSettings, Settings, SubmitSettings
from mqcd.core.errors import ConfigError
from mqcd.core.ports import TlsTerms
from mqcd.daemon.places import LISTENERS, LOCAL, Fault, bad_configuration
from mqcd.net.tls import client_context, file_fault
from mqcd.submit.filters.handlers import BadFilter, filter_key, make_handler
from mqcd.submit.policy.blacklists import read_blacklist
from mqcd.submit.policy.local import listener_of
from mqcd.submit.users.file import read_users


def check_files(settings: Settings, conf: Path | None = None, *, listens: bool = True) -> None:
    """Try each; `listens`: also those of listeners. `conf` is the file for errors to name. Raises
    BadConfiguration with all that fail."""
    faults = [*_tls_files(settings.deliver)]
    if listens:
        faults += [*_filters(settings.submit), *_listed(settings.submit)]
    if faults:
        raise bad_configuration(conf, faults)


def _filters(submit: SubmitSettings) -> Iterator[Fault]:
    for place, server in (*_servers(submit), (LOCAL, listener_of(submit.local, "").server)):
        for at, block in _blocks(server, ("filter", "filter_options")):
            try:
                if block.filter:
                    make_handler(*filter_key(block))
            except BadFilter as error:
                yield f"{place}/{at}filter@class", str(error)


def _listed(submit: SubmitSettings) -> Iterator[Fault]:
    for place, server in _servers(submit):
        for at, file, read in _files(server):
            try:
                read(file)
            except ConfigError as error:
                yield f"{place}/{at}@file", str(error)


def _files(server: ServerSettings) -> Iterator[tuple[str, Path, Callable[[Path], object]]]:
    """Where each file is named in the <server> block, and what reads it."""
    if server.users is not None:
        yield "users", server.users, read_users
    for at, block in _blocks(server, ("blacklist", "blacklist_enabled")):
        if block.blacklist is not None and block.blacklist_enabled:
            yield f"{at}blacklist", block.blacklist, read_blacklist


def _servers(submit: SubmitSettings) -> Iterator[tuple[str, ServerSettings]]:
    for number, listener in enumerate(submit.listeners, start=1):
        yield f"{LISTENERS}/listener[{number}]/server", listener.server


def _blocks(server: ServerSettings, names: Collection[str]) -> Iterator[tuple[str, ServerSettings]]:
    """A <server> block, and what the networks in it make of it that have one of these settings by themselves;
    before each, where it stands in the block."""
    yield "", server
    for number, network in enumerate(server.remotenets, start=1):
        own = given(network, NetworkSettings)
        if not own.keys().isdisjoint(names):
            yield f"remotenets/remotenet[{number}]/", replace(server, **own)


def _tls_files(deliver: DeliverSettings) -> Iterator[Fault]:
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
