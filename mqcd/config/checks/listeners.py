"""Contradictions in settings of listeners (TLS, LMTP, ODMR) and of TLS to relays. Pure: each is a path and a
text."""

from collections.abc import Iterator

from mqcd.config.kinds.overriding import given
from mqcd.config.settings import (
    AuthType,
    ListenerProtocol,
    ListenerSslSettings,
    Mechanism,
    NetworkSettings,
    Settings,
)

Remarks = Iterator[tuple[str, str]]

_SMTP_PORT = 25


def tls_of_relays(settings: Settings) -> Remarks:
    """TLS with next hops."""
    for index, relay in enumerate(settings.deliver.relays, start=1):
        ssl, at = relay.ssl, f"mta/deliver/relays/relay[{index}]/ssl"
        if ssl.latent is None and (ssl.mandatory or ssl.verify or ssl.certfile):
            text = "must be given: Y for STARTTLS, N where the connection begins with TLS"
            yield f"{at}@latent", text
        if ssl.keyfile is not None and ssl.certfile is None:
            yield f"{at}@certfile", "must be given with keyfile"
        if relay.auth.enabled and relay.auth.override is Mechanism.EXTERNAL and ssl.certfile is None:
            yield f"{at}@certfile", "must be given for a login by external"
    if settings.deliver.client.tls_mandatory and not settings.deliver.client.anonssl:
        yield "mta/deliver/client/anonssl@mandatory", "contradicts anonssl N: say Y there, or N here"


def tls_of_listeners(settings: Settings) -> Remarks:
    """TLS with clients."""
    for index, listener in enumerate(settings.submit.listeners, start=1):
        ssl, at = listener.ssl, f"mta/submit/listeners/listener[{index}]/ssl"
        if ssl.certfile and ssl.latent is None:
            yield f"{at}@latent", "must be given: Y for STARTTLS, N where connections begin with TLS"
        # Optional TLS alone restricts nothing: `doubts` names it.
        if not ssl.certfile and ssl not in (ListenerSslSettings(), ListenerSslSettings(latent=True)):
            yield f"{at}@certfile", "must be given where ssl is: the certificate, with its chain (PEM)"
        elif ssl.keyfile and len(ssl.keyfile) != len(ssl.certfile):
            text = f"{len(ssl.keyfile)} keys for {len(ssl.certfile)} certificates: name one for each, or none"
            yield f"{at}@keyfile", text
        if AuthType.EXTERNAL in listener.server.authtypes and ssl.trust is None:
            yield (
                f"{at}@trust",
                "must be given where authtypes has external: what signs clients' certificates",
            )


def lmtp_of_listeners(settings: Settings) -> Remarks:
    """What LMTP forbids, or cannot have here."""
    for index, listener in enumerate(settings.submit.listeners, start=1):
        if listener.protocol is not ListenerProtocol.LMTP:
            continue
        server, at = listener.server, f"mta/submit/listeners/listener[{index}]"
        if listener.port == _SMTP_PORT:
            yield f"{at}@port", "LMTP must not be spoken on port 25 (RFC 2033, 5): choose another, such as 24"
        networks = [given(each, NetworkSettings).get("filter", "") for each in server.remotenets]
        if any((server.filter, *networks)):
            # A filter may change the recipients, and the client counts replies.
            yield f"{at}/server/filter@class", "a listener that speaks LMTP takes no filter"


def odmr_of_listeners(settings: Settings) -> Remarks:
    """What users could not collect."""
    for index, listener in enumerate(settings.submit.listeners, start=1):
        if listener.protocol is not ListenerProtocol.ODMR:
            continue
        at = f"mta/submit/listeners/listener[{index}]"
        if listener.server.users is None:
            yield (
                f"{at}/server/users@file",
                "a listener for ODMR needs users: only they collect mail",
            )
