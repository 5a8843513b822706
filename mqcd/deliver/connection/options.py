"""Options of the SMTP client for one address, from common settings, network settings and policy. Pure.

Of the networks in `remotenets` that hold an address the first in the file counts; settings it leaves out are
the common ones. It changes what the client's settings say, not what a zone, a destination or a relay does.
"""

from __future__ import annotations

from dataclasses import fields, replace

from mqcd.config.settings import ClientSettings, RemoteNetSettings
from mqcd.deliver.routing.policy import Hop, tls_of
from mqcd.deliver.routing.routing import within
from mqcd.deliver.smtp.exchange import Options

_OVERRIDES = [field.name for field in fields(RemoteNetSettings) if field.name != "ip"]


def client_for(client: ClientSettings, address: str) -> ClientSettings:
    """The settings that hold for an IP address."""
    for network in client.remotenets:
        if within(network.ip, address):
            given = {name: getattr(network, name) for name in _OVERRIDES}
            return replace(
                client, **{name: value for name, value in given.items() if value not in (None, "")}
            )
    return client


def options_for(client: ClientSettings, usual: ClientSettings, hop: Hop) -> Options:
    """The options for a host of a hop: `client` applies to its address, `usual` to all."""
    policy = hop.policy
    hello, tls = policy.helo, policy.tls
    if client is not usual:
        if hello == usual.announcehost:
            hello = client.announcehost
        if not policy.tls_chosen:
            tls = tls_of(client)
    return Options(
        hello=hello,
        maxpipeline=client.maxpipeline,
        say_helo=client.say_helo,
        fallback_helo=client.fallback_helo,
        chunking=client.ext_chunking,
        lmtp=policy.lmtp,
        relay=hop.destination.relay,
        tls=tls,
        implicit_tls=policy.implicit_tls,
        checked=policy.checked,
        trust=str(client.trust or ""),
        certificate=policy.certificate,
        key=policy.key,
        login=policy.login,
    )
