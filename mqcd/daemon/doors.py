"""The doors of one server process, and what they share: connections, logins, the load, the greylist."""

from __future__ import annotations

from collections.abc import Sequence

from mqcd.config.settings import Settings
from mqcd.core.ports import Clock, Observer, QueueStore, Resolver
from mqcd.daemon.host.descriptors import Shares
from mqcd.daemon.listeners.listenertls import ListenersTls
from mqcd.daemon.shards.role import Passing, Role
from mqcd.net.balance import Balance
from mqcd.submit.door import Door
from mqcd.submit.policy.capacity import Capacity, Peers
from mqcd.submit.policy.greylist import Greylist
from mqcd.submit.policy.load import Load
from mqcd.submit.policy.quotas import SessionPlaces
from mqcd.submit.users.logins import Logins


class Doors:
    """Those of the listeners; `role` is that of one shard of several."""

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
        self._logins = Logins()
        self._greylist = Greylist(settings.submit.greylist, clock)
        tokens = None if role is None else role.tokens
        self.listeners: Sequence[Door] = [
            Door(
                listener,
                store,
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

    def close(self) -> None:
        """End their threads, once the doors have stopped."""
        self._logins.close()
        self._greylist.close()
