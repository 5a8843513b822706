"""Contradictions in settings of TLS. Pure: each is a path and a text."""

from collections.abc import Iterator

from mqcd.config.settings import AuthType, ListenerSslSettings, Mechanism, Settings

Remarks = Iterator[tuple[str, str]]


def tls_of_relays(settings: Settings) -> Remarks:
    """With next hops."""
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
    """With clients."""
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
