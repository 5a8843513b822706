"""Makes the parts of a server that take many others."""

from __future__ import annotations

from dataclasses import dataclass

from mqcd.config.settings import Settings
from mqcd.core.ports import Clock, Notifier, Observer, Resolver
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.daemon.control.actions.batches import Batches
from mqcd.daemon.control.actions.effects import Effects, Replies
from mqcd.daemon.control.actions.ruling import Ruling
from mqcd.daemon.control.resolving import resolving
from mqcd.daemon.derived import own_names, schedule_of
from mqcd.daemon.host.descriptors import Shares
from mqcd.daemon.rules.book import RuleBook, rules_path
from mqcd.daemon.shards.role import Role
from mqcd.daemon.storing import ServedStore
from mqcd.deliver.service import Deliverer
from mqcd.net.dialer import SystemDialer
from mqcd.ops.log.log import LogEvent


@dataclass(frozen=True, slots=True)
class Parts:
    """What delivery works with."""

    store: ServedStore
    clock: Clock
    observer: Observer
    resolver: Resolver
    notifier: Notifier
    shares: Shares


def make_deliverer(settings: Settings, schedule: RetrySchedule, parts: Parts, role: Role | None) -> Deliverer:
    """Delivery; `role`: of one shard of several."""
    return Deliverer(
        settings.deliver,
        schedule,
        store=parts.store,
        clock=parts.clock,
        resolver=parts.resolver,
        dialer=SystemDialer(),
        observer=parts.observer,
        notifier=parts.notifier,
        own_names=own_names(settings),
        most_connections=parts.shares.outbound,
        tokens=role.tokens if role is not None else None,
        used=role.used if role is not None else None,
    )


def make_batches(
    settings: Settings, store: ServedStore, clock: Clock, role: Role | None, log_event: LogEvent
) -> Batches:
    """Operators' actions; `role` as above."""
    shard = role.shard if role is not None else 0
    batches = Batches(store, clock, settings.ops.control.batches, shard, settings.queue.grace, log_event)
    batches.longest_ms = schedule_of(settings).longest
    return batches


@dataclass(frozen=True, slots=True)
class Rules:
    """The standing rules of one process."""

    book: RuleBook
    effects: Effects
    pages: Ruling


def make_rules(
    settings: Settings,
    parts: Parts,
    deliverer: Deliverer,
    batches: Batches,
    role: Role | None,
    log_event: LogEvent,
) -> Rules:
    """The rules; not read yet. `role` as above."""
    clock, speaks = parts.clock, role is None or role.shard == 0
    effects = Effects(deliverer, batches, clock, parts.store.may_expire, log_event, speaks=speaks)
    book = RuleBook(rules_path(settings), clock, parts.store.may_expire, effects)
    deliverer.on_effect(Replies(book, clock, log_event))
    batches.following.reach, batches.following.pending = deliverer.act, deliverer.standing.pending
    batches.probe = deliverer.probe
    batches.resolve = resolving(parts.store, lambda: deliverer.router)
    return Rules(book, effects, Ruling(book, deliverer, batches, clock, log_event))
