"""Contradictions in settings of listeners that speak LMTP. Pure: each is a path and a text."""

from collections.abc import Iterator

from mqcd.config.kinds.overriding import given
from mqcd.config.settings import ListenerProtocol, NetworkSettings, Settings

Remarks = Iterator[tuple[str, str]]

_SMTP_PORT = 25


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
