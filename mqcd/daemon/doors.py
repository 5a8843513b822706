"""The doors of one server process, and what they share: connections, logins, the load, the greylist.

One for each listener, and one for the programs on this machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqcd.config.settings import Settings
from mqcd.core.ports import Clock, MailTaker, Observer, QueueStore, Resolver
from mqcd.daemon.host.descriptors import Shares
from mqcd.daemon.listeners.listenertls import ListenersTls
from mqcd.daemon.listeners.local import LocalMail
from mqcd.daemon.shards.owners import Owned
from mqcd.daemon.shards.owning import Owning
from mqcd.daemon.shards.role import Passing, Role
from mqcd.net.shared.balance import Balance
from mqcd.queue.store import ClusterStore
from mqcd.submit.door import Door
from mqcd.submit.policy.capacity import Capacity, Peers
from mqcd.submit.policy.greylist import Greylist
from mqcd.submit.policy.load import Load
from mqcd.submit.policy.quotas import SessionPlaces
from mqcd.submit.users.logins import Logins


class Doors:
    """All of them; `role` is that of one shard of several."""

    def __init__(
        self,
        settings: Settings,
        shares: Shares,
        store: QueueStore,
        clock: Clock,
        observer: Observer,
        *,
        resolver: Resolver,
        tls: ListenersTls,
        role: Role | None,
        balance: Balance | None,
    ) -> None:
        self.capacity = Capacity(shares.inbound, shares.trusted)
        self.load = Load(clock.monotonic)
        self._logins = Logins(None if role is None else role.failures)
        self.taker: MailTaker = store
        """What takes the mail: the queue, or with several shards the queue that owns a message's key."""
        self._owned: Owned | None = None
        self._owning: Owning | None = None
        if role is not None and isinstance(store, ClusterStore):
            self.taker = self._owned = Owned(store, role.shard, role.owners)
            if role.shard < len(role.owners):
                self._owning = Owning(store, role.owners[role.shard])
        self._greylist = Greylist(settings.submit.greylist, clock)
        tokens = None if role is None else role.tokens
        self.listeners: Sequence[Door] = [
            Door(
                listener,
                self.taker,
                clock,
                observer,
                inline_max=settings.queue.journal.inline_max,
                resolver=resolver,
                zones=settings.deliver.zones,
                capacity=self.capacity,
                passing=None if balance is None else Passing(balance, index),
                peers=Peers(listener.name, tokens),
                logins=self._logins,
                places=SessionPlaces(tokens),
                rates=None if role is None else role.quotas,
                greylist=self._greylist,
                load=self.load,
                tls=tls.of(listener.name),
            )
            for index, listener in enumerate(settings.submit.listeners)
        ]
        self.local: LocalMail | None = None
        """Mail of programs on this machine, if this is the first shard, and of the API."""
        if not settings.queue.read_only:
            parts, first = (clock, observer, self.capacity), not (role and role.shard)
            self.local = LocalMail(settings, store, self.taker, *parts, serves=first)
        self.all = self.listeners if self.local is None else [*self.listeners, self.local.door]

    async def listen(self, place: str) -> None:
        """Take messages of other shards. Raises ConfigError; `place` is where the control socket is set."""
        if self._owning is not None:
            await self._owning.listen(place)

    async def close(self) -> None:
        """End what they share, once the doors have stopped."""
        if self._owned is not None:
            self._owned.close()
        if self._owning is not None:
            await self._owning.close()
        self._logins.close()
        self._greylist.close()
