"""The TLS of all listeners: loaded from the files that the configuration names, and exchanged at SIGHUP.

With several shards it is made once, before they are forked: they share the keys of session tickets, and the
certificates that only root could read. The start loads the files before privileges are dropped; at SIGHUP
files that are still the same are not read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from mqcd.config.settings import AuthType, ListenerSettings, SubmitSettings
from mqcd.daemon.places import LISTENERS, Fault, bad_configuration
from mqcd.net.securing.server import BadTlsFile, Certificates, ListenerTls, ServerTlsTerms

Loaded = Mapping[str, Certificates]
"""By name of the listener; not those without TLS."""


class ListenersTls:
    """Of one server."""

    def __init__(self, submit: SubmitSettings) -> None:
        self._by_name: dict[str, ListenerTls] = {}
        for listener in submit.listeners:
            # Also without TLS: it may be switched on later, and all shards must have the same keys.
            self.of(listener.name)

    def of(self, name: str) -> ListenerTls:
        """A listener's."""
        return self._by_name.setdefault(name, ListenerTls())

    def load(self, submit: SubmitSettings, conf: Path | None = None) -> Loaded:
        """Read what has changed; `conf` is the file for errors to name. Raises BadConfiguration with an error
        for each listener whose files cannot be loaded."""
        loaded: dict[str, Certificates] = {}
        faults: list[Fault] = []
        for number, listener in enumerate(submit.listeners, start=1):
            for terms in _terms(listener):
                try:
                    loaded[listener.name] = self.of(listener.name).load(terms)
                except BadTlsFile as error:
                    faults.append((f"{LISTENERS}/listener[{number}]/ssl@{error.setting}", str(error)))
        if faults:
            raise bad_configuration(conf, faults)
        return loaded

    def use(self, loaded: Loaded) -> None:
        """From the next handshake on."""
        for name, certificates in loaded.items():
            self.of(name).use(certificates)


def _terms(listener: ListenerSettings) -> Iterator[ServerTlsTerms]:
    ssl, server = listener.ssl, listener.server
    if ssl.certfile:
        yield ServerTlsTerms(
            certificates=ssl.certfile,
            keys=ssl.keyfile,
            trust=ssl.trust,
            exports=bool(server.users) and AuthType.SCRAM_SHA_256_PLUS in server.authtypes,
        )
