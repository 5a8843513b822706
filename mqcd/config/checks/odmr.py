"""Contradictions in settings of listeners by which users collect mail (ODMR). Pure."""

from collections.abc import Iterator

from mqcd.config.settings import ListenerProtocol, Settings

Remarks = Iterator[tuple[str, str]]


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
