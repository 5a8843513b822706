"""Contradictions in settings of listeners (TLS, logins, greylisting, LMTP, ODMR) and of TLS to relays. Pure:
each is a path and a text."""

import dataclasses
from collections.abc import Iterator

from mqcd.config.checks.faults import Remarks, listeners, numbered, relays
from mqcd.config.kinds.fields import Duration
from mqcd.config.kinds.overriding import given
from mqcd.config.settings import (
    AuthType,
    ClientSettings,
    ListenerProtocol,
    ListenerSettings,
    ListenerSslSettings,
    Mechanism,
    NetworkSettings,
    RemoteNetSettings,
    ServerSettings,
    Settings,
)

_SMTP_PORT = 25


def tls_of_relays(settings: Settings) -> Remarks:
    """TLS with next hops."""
    for path, relay in relays(settings):
        ssl, at = relay.ssl, f"{path}/ssl"
        if ssl.latent is None and (ssl.mandatory or ssl.verify or ssl.certfile):
            text = "must be given: Y for STARTTLS, N where the connection begins with TLS"
            yield f"{at}@latent", text
        if ssl.keyfile is not None and ssl.certfile is None:
            yield f"{at}@certfile", "must be given with keyfile"
        if relay.auth.enabled and relay.auth.override is Mechanism.EXTERNAL and ssl.certfile is None:
            yield f"{at}@certfile", "must be given for a login by external"
    client = settings.deliver.client
    places: dict[str, ClientSettings | RemoteNetSettings] = {"": client}
    places |= dict(numbered("/remotenets/remotenet", client.remotenets))
    for at, one in places.items():
        tls = client.anonssl if one.anonssl is None else one.anonssl
        mandatory = client.tls_mandatory if one.tls_mandatory is None else one.tls_mandatory
        if mandatory and not tls and (one.anonssl, one.tls_mandatory) != (None, None):
            yield f"mta/deliver/client{at}/anonssl@mandatory", "contradicts anonssl N: say Y there, or N here"


def tls_of_listeners(settings: Settings) -> Remarks:
    """TLS with clients."""
    for here, listener in listeners(settings):
        ssl, at = listener.ssl, f"{here}/ssl"
        if ssl.certfile and ssl.latent is None:
            yield f"{at}@latent", "must be given: Y for STARTTLS, N where connections begin with TLS"
        # Optional TLS alone restricts nothing: `doubts` names it.
        if not ssl.certfile and ssl not in (ListenerSslSettings(), ListenerSslSettings(latent=True)):
            yield f"{at}@certfile", "must be given where ssl is: the certificate, with its chain (PEM)"
        elif ssl.keyfile and len(ssl.keyfile) != len(ssl.certfile):
            text = f"{len(ssl.keyfile)} keys for {len(ssl.certfile)} certificates: name one for each, or none"
            yield f"{at}@keyfile", text
        external = any(AuthType.EXTERNAL in server.authtypes for _, server in _served(listener, here))
        if external and ssl.trust is None:
            text = "must be given where authtypes has external: what signs clients' certificates"
            yield f"{at}@trust", text


def _served(listener: ListenerSettings, at: str, *named: str) -> Iterator[tuple[str, ServerSettings]]:
    """How all clients of the listener at `at` are served, and those of each network that states one of the
    `named` settings (none: of each network); with the path of where that is stated."""
    yield f"{at}/server", listener.server
    for path, network in numbered(f"{at}/server/remotenets/remotenet", listener.server.remotenets):
        own = given(network, NetworkSettings)
        if not named or not own.keys().isdisjoint(named):
            yield path, dataclasses.replace(listener.server, **own)


def logins_of_listeners(settings: Settings) -> Remarks:
    """Logins that nobody could make."""
    usual = ServerSettings().authtypes
    for at, listener in listeners(settings):
        users = listener.server.users
        if users is None and listener.server.senders:
            yield f"{at}/server/users@file", "must be given where senders is: `mqcd user` makes the file"
        for path, server in _served(listener, at, "authtypes", "authtypes_mandatory"):
            wanted = server.authtypes_mandatory or server.authtypes not in (usual, ())
            if users is None and wanted and server is listener.server:
                yield f"{path}/users@file", "must be given where authtypes is: `mqcd user` makes the file"
            elif users is None and wanted:
                yield f"{path}/authtypes", "needs users@file of the listener: `mqcd user` makes the file"
            elif server.authtypes_mandatory and not server.authtypes:
                yield f"{path}/authtypes", "names no mechanism, but a login is mandatory"


def greylists_of_listeners(settings: Settings) -> Remarks:
    """Greylisting that mail never passes."""
    named = "greylist", "greylist_delay", "greylist_window"
    for at, listener in listeners(settings):
        for path, server in _served(listener, at, *named):
            if server.greylist and server.greylist_window <= server.greylist_delay:
                delay = Duration().show(server.greylist_delay)
                yield f"{path}/greylist@window", f"must be longer than the delay, {delay}: no mail would pass"


def lmtp_of_listeners(settings: Settings) -> Remarks:
    """What LMTP forbids, or cannot have here."""
    for at, listener in listeners(settings):
        if listener.protocol is not ListenerProtocol.LMTP:
            continue
        if listener.port == _SMTP_PORT:
            yield f"{at}@port", "LMTP must not be spoken on port 25 (RFC 2033, 5): choose another, such as 24"
        if any(server.filter for _, server in _served(listener, at)):
            # A filter may change the recipients, and the client counts replies.
            yield f"{at}/server/filter@class", "a listener that speaks LMTP takes no filter"


def odmr_of_listeners(settings: Settings) -> Remarks:
    """What users could not collect."""
    for at, listener in listeners(settings):
        if listener.protocol is ListenerProtocol.ODMR and listener.server.users is None:
            yield f"{at}/server/users@file", "a listener for ODMR needs users: only they collect mail"
