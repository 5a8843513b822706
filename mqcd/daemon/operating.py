"""Operators' actions and the standing rules of one process, joined to its delivery."""

from __future__ import annotations

from mqcd.config.settings import Settings
from mqcd.core.ports import Clock
from mqcd.core.value import value
from mqcd.daemon.control.actions.batches import Batches
from mqcd.daemon.control.actions.effects import Effects, Replies
from mqcd.daemon.control.actions.ruling import Ruling
from mqcd.daemon.control.resolving import resolving
from mqcd.daemon.rules.book import RuleBook, rules_path
from mqcd.daemon.storing import ServedStore
from mqcd.deliver.service import Deliverer
from mqcd.ops.log.log import LogEvent


@value(kw_only=False)
class Operating:
    """What `make_operating` has made; nothing is read yet."""

    batches: Batches
    book: RuleBook
    effects: Effects
    ruling: Ruling


def make_operating(
    settings: Settings,
    store: ServedStore,
    deliverer: Deliverer,
    clock: Clock,
    log_event: LogEvent,
    shard: int,
) -> Operating:
    """`shard`: the first one logs what has ended, for all of them."""
    may_expire, grace_ms = store.may_expire, settings.queue.grace
    batches = Batches(store, clock, settings.ops.control.batches, shard, grace_ms, log_event)
    batches.following.reach, batches.following.pending = deliverer.act, deliverer.reaching.pending
    batches.probe = deliverer.probe
    batches.resolve = resolving(store, lambda: deliverer.router)
    effects = Effects(deliverer, batches, clock, may_expire, log_event, speaks=shard == 0)
    book = RuleBook(rules_path(settings), clock, may_expire, effects)
    deliverer.on_effect(Replies(book, clock, log_event))
    return Operating(batches, book, effects, Ruling(book, deliverer, batches, clock, log_event))
