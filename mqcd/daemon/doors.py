"""The doors of one server process, and what they share: connections, logins, the load, the greylist.

One for each listener, and one for the programs on this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mqcd.config.settings import Settings, SubmitSettings
from mqcd.core.model import Envelope
from mqcd.core.ports import Clock, MailTaker, Observer, QueueStore, Resolver
from mqcd.core.queueing.holding import Holding
from mqcd.core.smtp.reply import Reply
from mqcd.daemon.host.descriptors import Shares
from mqcd.daemon.listeners.listenertls import ListenersTls
from mqcd.daemon.listeners.local import LocalMail
from mqcd.daemon.listeners.maildrop import Maildrop
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
from mqcd.submit.policy.rules import Suppressed
from mqcd.submit.session.desk import HeldMail
from mqcd.submit.users.logins import Logins

_READ_ONLY = Reply(code=451, status="4.3.2", text="This queue is read-only, try again later")


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
            if role.listens:
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
        if not settings.queue.read_only and (role is None or role.listens):
            parts, first = (clock, observer, self.capacity, self.load), not (role and role.shard)
            self.local = LocalMail(settings, store, self.taker, *parts, serves=first)
        self.maildrop: Maildrop | None = None
        """None: it is not this process's."""
        if self.local is not None and self.local.serves:
            self.maildrop = self.local.maildrop
        self.all = self.listeners if self.local is None else [*self.listeners, self.local.door]

    async def listen(self, place: str) -> None:
        """Take messages of other shards. Raises ConfigError; `place` is where the control socket is set."""
        if self._owning is not None:
            await self._owning.listen(place)

    def open(self, *, read_only: bool) -> None:
        """Let mail in; refuse it if the queue is only read."""
        for door in self.all:
            if read_only:
                door.close_door(_READ_ONLY)
            else:
                door.open_door()

    def trusts(self, envelope: Envelope) -> bool:
        """Whether a message came from a user, or from a client that the listener which took it trusts; a
        removed listener trusts no client."""
        return bool(envelope.user) or any(
            door.settings.name == envelope.listener and door.trusts(envelope.client)
            for door in self.listeners
        )

    def hold(self, holding: Holding, held: HeldMail) -> None:
        """As `Door.hold`."""
        for door in self.all:
            door.hold(holding, held)

    def suppress(self, suppressed: Suppressed | None) -> None:
        """As `Door.suppress`."""
        for door in self.all:
            door.suppress(suppressed)

    def reload(self, settings: Settings) -> SubmitSettings:
        """Go by these settings from now on; files of users and lists that have changed are read again.
        Returns those in effect: a door whose filter, list or users cannot be had keeps its old ones."""
        local = settings.submit.local
        if self.local is not None:
            self.local.reload(settings)
            local = self.local.settings
        for door, listener in zip(self.listeners, settings.submit.listeners, strict=True):
            if door.settings != listener:
                door.reload(listener.server, listener.ssl)
            door.assign(settings.deliver.zones)
            door.look_at_files()
        listeners = tuple(door.settings for door in self.listeners)
        return replace(settings.submit, listeners=listeners, local=local)

    async def close(self) -> None:
        """End what they share, once the doors have stopped."""
        if self._owned is not None:
            self._owned.close()
        if self._owning is not None:
            await self._owning.close()
        self._logins.close()
        self._greylist.close()
