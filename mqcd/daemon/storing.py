"""The queue that a server runs on: the clustered-file queue, or the store that the configuration names."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from mqcd.config.settings import CLUSTER, Settings, StoreSettings
from mqcd.core.errors import ConfigError
from mqcd.core.ports import Clock, Observer, QueueStore
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.value import value
from mqcd.daemon.places import bad_configuration
from mqcd.eventlog.history import History
from mqcd.eventlog.retention import Retention
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.read_only import ReadOnlyStore
from mqcd.queue.store import ClusterStore
from mqcd.stores.backend import Backend, Promises
from mqcd.stores.choose import BadStore, make_backend
from mqcd.stores.queue.exporting import EventFiles
from mqcd.stores.queue.stored_queue import StoredQueue

STORE = "mta/queue/store"
_CLUSTER = Promises(synced=True, atomic=True, shared=False)


class ServedStore(QueueStore, Protocol):
    """What a server needs of its queue beside the port."""

    def refusing(self) -> str:
        """Why no mail is taken now; "" when it is."""

    def stalled(self) -> str:
        """Why no verdict can be recorded now; "" when they can be."""

    async def history(self, spid: int) -> History:
        """What happened to a message, also to one that has left. Raises StoreUnavailable, OSError."""

    async def changed_by(self, batch: str, since: int) -> int:
        """How many recipients a batch has changed that was asked for at `since` (ms), by the event log.

        Raises StoreUnavailable, OSError.
        """

    def reload(self, schedule: RetrySchedule, retention: Retention) -> None:
        """Go by other settings from now on."""


@value(kw_only=False)
class Described:
    """A store as it is shown."""

    kind: str
    queue: StoredQueue | None = None
    """None = the clustered-file queue."""

    @property
    def promises(self) -> Promises:
        """What it promises; some stores know it once they are open."""
        return self.queue.promises if self.queue is not None else _CLUSTER

    def labels(self) -> tuple[str, ...]:
        """Values of the labels of `mqcd_store_info`."""
        kept = self.promises
        return (self.kind, *("yes" if each else "no" for each in (kept.synced, kept.atomic, kept.shared)))

    @property
    def warnings(self) -> list[str]:
        """What it does not promise."""
        return _warnings(self.kind, self.promises)


def _warnings(kind: str, promises: Promises) -> list[str]:
    texts = []
    if not promises.synced:
        texts.append("mail is not synced before it is accepted: a power failure may lose it")
    if not promises.atomic:
        texts.append("a crash may leave a report twice: not all changes of one write are kept together")
    return [f"the store {kind}: {text}" for text in texts]


def make_store(
    settings: Settings, options: Options, clock: Clock, observer: Observer, conf: Path | None
) -> tuple[ServedStore, Described]:
    """The queue, not open yet. Raises BadConfiguration."""
    store = settings.queue.store
    if store.kind != CLUSTER:
        queue = make_stored(store, options, clock, observer, conf)
        return queue, Described(store.kind, queue)
    described = Described(CLUSTER)
    if settings.queue.read_only:
        return ReadOnlyStore(options), described
    return ClusterStore(options, clock, observer), described


def make_stored(
    store: StoreSettings, options: Options, clock: Clock, observer: Observer, conf: Path | None
) -> StoredQueue:
    """The queue over a store of documents. Raises BadConfiguration."""
    backend = backend_of(store, conf)
    events = EventFiles(directory=options.events, source=options.source, retention=options.retention)
    return StoredQueue(backend, clock, observer, options.schedule, events, key_age=options.settings.key_age)


def backend_of(store: StoreSettings, conf: Path | None = None) -> Backend:
    """The store itself; `conf` is the file for errors to name. Raises BadConfiguration."""
    try:
        return make_backend(store)
    except BadStore as error:
        path = f"{STORE}/{error.name}" if error.name else f"{STORE}@class"
        raise bad_configuration(conf, [(path, str(error))]) from error


def check_store(settings: Settings, conf: Path | None = None) -> list[str]:
    """Make the store without opening it; returns what it does not promise. Raises BadConfiguration."""
    store = settings.queue.store
    return [] if store.kind == CLUSTER else _warnings(store.kind, backend_of(store, conf).promises)


def need_cluster(settings: Settings, what: str) -> None:
    """Raises ConfigError where `what` is for the clustered-file queue and the store is another."""
    kind = settings.queue.store.kind
    if kind != CLUSTER:
        raise ConfigError(f"{what} is for the clustered-file queue; this configuration's store is {kind}")
