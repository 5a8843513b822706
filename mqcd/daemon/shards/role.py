"""What the server process of one shard of several is given by the supervisor."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from mqcd.core.ports import Tokens, UsedRates
from mqcd.core.value import value
from mqcd.daemon.listeners.listenertls import ListenersTls
from mqcd.net.shared.balance import Balance, Mailboxes
from mqcd.submit.auth.failures import Failures


@value
class Role:
    """Of one shard."""

    shard: int
    sockets: Sequence[Sequence[socket.socket]]
    """By listener: bound."""
    tls: ListenersTls
    """With the keys that all shards share."""
    boxes: Mailboxes
    tokens: Tokens
    """Connections that all shards share."""
    used: UsedRates
    """What all have used of the rates of delivery."""
    quotas: UsedRates
    """What all have used of the quotas of listeners."""
    failures: Failures
    """Failed logins at all."""
    alive: int
    """Descriptor: `supervisor.Part.alive`."""
    owners: Sequence[Path]
    """By shard that takes mail: where it takes the messages of its keys, see `owners`."""
    others: Mapping[int, Path] = field(default_factory=dict)
    """By shard, the control sockets of the other processes."""
    ready: Callable[[], None]
    """Called once mail is accepted."""

    @property
    def listens(self) -> bool:
        """Whether it takes mail; else it has mail from a time with more shards, and only delivers."""
        return self.shard < len(self.owners)

    def balance(self, refusing: Callable[[], str | None]) -> Balance:
        """Its part of the balance of connections."""
        return Balance(self.boxes, self.shard, refusing if self.listens else lambda: "takes no mail")


@value(kw_only=False)
class Passing:
    """The connections of one listener."""

    balance: Balance
    listener: int

    def passes(self, connection: socket.socket, connections: int) -> bool:
        """See `policy.capacity.Passing`."""
        return self.balance.passes(self.listener, connection, connections)

    def count(self, connections: int) -> None:
        """See `policy.capacity.Passing`."""
        self.balance.count(connections)

    def elsewhere(self) -> bool:
        """See `policy.capacity.Passing`."""
        return self.balance.elsewhere()
