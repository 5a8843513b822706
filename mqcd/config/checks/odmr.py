"""Contradictions in settings of listeners by which users collect mail (ODMR). Pure."""

from collections.abc import Iterator

from mqcd.config.settings import CLUSTER, ListenerProtocol, Settings

Remarks = Iterator[tuple[str, str]]


def odmr_of_listeners(settings: Settings) -> Remarks:
    """What users could not collect, or only in part."""
    for index, listener in enumerate(settings.submit.listeners, start=1):
        if listener.protocol is not ListenerProtocol.ODMR:
            continue
        at = f"mta/submit/listeners/listener[{index}]"
        if listener.server.users is None:
            yield (
                f"{at}/server/users@file",
                "a listener for ODMR needs users: only they collect mail",
            )
        queue = settings.queue
        if queue.store.kind == CLUSTER and (len(queue.places) or queue.shards) != 1:
            yield (
                "mta/queue/shards",
                "must be 1 with a listener for ODMR: mail of one shard is collected",
            )
