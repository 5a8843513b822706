"""`explain`: asked of the running server, which knows what it is doing, else of the files and DNS alone.

An address or a domain is explained as mail to it would go now, and then each recipient of the queue that it
names, at most `MAX_RECIPIENTS`; a SPID, each recipient of its message that is left.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from urllib.parse import urlencode

from mqcd.config.advice import Advice, SuppressionList, read_advice
from mqcd.config.settings import CLUSTER, OpsSettings, Settings
from mqcd.core.address import check_address, domain_of, normal_domain
from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.queueing.spid import parse_spid
from mqcd.core.selecting.rules import RuleSet, StandingRule
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.advised import ACTIVE
from mqcd.daemon.derived import own_names, schedule_of, suppressions_of
from mqcd.daemon.hashkey import hash_key
from mqcd.daemon.rules.book import read_rules, rules_path
from mqcd.deliver.explaining import Explainer
from mqcd.deliver.outlook import Waiting
from mqcd.deliver.routing.policy import Hop
from mqcd.deliver.routing.router import Router
from mqcd.deliver.service import Deliverer
from mqcd.disk.durable import Disk
from mqcd.net.control.client import Control, NoAnswer
from mqcd.net.resolver import DnsResolver
from mqcd.queue.reading.shards import Snapshots

MAX_RECIPIENTS = 20
ASK_S = 10
"""How long a running server may take to answer."""

Explanations = Sequence[dict[str, object]]


class NotFound(DecodeError):
    """The message that was asked for is not in the queue."""


async def explain_live(
    store: QueueStore, deliverer: Deliverer, suppressed: SuppressionList, asked: str, sender: str
) -> Explanations:
    """By a running server. Raises DecodeError for what is none of these."""

    async def waitings(selection: Selection) -> AsyncIterator[Waiting]:
        async for recipient in store.scan(selection):
            yield deliverer.waiting(recipient)

    return await _explained(deliverer.explainer(), suppressed, waitings, asked, sender)


async def explain_files(settings: Settings, clock: Clock, asked: str, sender: str) -> Explanations:
    """Without a server: what a start would do. Raises ConfigError, DecodeError, StoreDamaged."""
    active = settings.ops.advice.rootpath / ACTIVE
    advice = read_advice(active) if active.exists() else Advice()
    now = clock.now()
    advice = advice.keeping(lambda piece: piece.until > now)
    schedule = schedule_of(settings, advice.shapings)
    resolver = DnsResolver(settings.deliver.dns, clock)
    router = Router(settings.deliver, schedule, resolver, clock, own_names(settings), advice.shapings)
    rules = RuleSet(read_rules(rules_path(settings), now))

    def rule_of(recipient: Recipient, hop: Hop | None) -> StandingRule | None:
        return rules.find(recipient, None if hop is None else hop.destination.name, clock.now())

    explainer = Explainer(router, clock, lambda _: None, rule_of, settings.deliver.maxrecips)

    async def waitings(selection: Selection) -> AsyncIterator[Waiting]:
        for waiting in await asyncio.to_thread(_read, settings, selection):
            yield waiting

    suppressed = suppressions_of(advice, hash_key(settings.ops.events))
    return await _explained(explainer, suppressed, waitings, asked, sender)


def ask_server(ops: OpsSettings, asked: str, sender: str) -> Explanations:
    """What the running server says. Raises NoAnswer, DecodeError."""
    query = urlencode({"q": asked, "sender": sender})
    text = Control(ops.control.path).ask(f"/v1/explain?{query}", seconds=ASK_S)
    try:
        return [json.loads(line) for line in text.splitlines()]
    except ValueError as error:
        raise NoAnswer(f"no mqcd answers at {ops.control.path}") from error


async def _explained(
    explainer: Explainer,
    suppressed: SuppressionList,
    waitings: Callable[[Selection], AsyncIterator[Waiting]],
    asked: str,
    sender: str,
) -> Explanations:
    if re.fullmatch("[0-9A-Fa-f]{16}", asked):
        found = [each async for each in waitings(Selection(spid=parse_spid(asked)))]
        if not found:
            raise NotFound(f"no recipient of message {asked.upper()} is in the queue")
        return [await explainer.why(each) for each in found]
    domain = normal_domain(asked) if "@" not in asked and ("." in asked or asked.startswith("[")) else ""
    try:
        check_address(f"postmaster@{domain}" if domain else asked)
    except DecodeError as error:
        raise DecodeError(f"neither a SPID (16 hex digits), a mail address nor a domain: {error}") from error
    refusal = None if domain else suppressed.refusal(asked)
    would_go = await explainer.would_go(asked, domain or domain_of(asked), sender)
    explained: list[dict[str, object]] = [{**would_go, "suppressed": str(refusal) if refusal else None}]
    selection = Selection(
        recipient="" if domain else asked, domain=domain, sender=sender or None, limit=MAX_RECIPIENTS
    )
    return explained + [await explainer.why(each) async for each in waitings(selection)]


def _read(settings: Settings, selection: Selection) -> list[Waiting]:
    queue = settings.queue
    if queue.store.kind != CLUSTER:
        # What waits in another store is known to its server.
        return []
    try:
        snapshot = Snapshots(Disk(), queue.rootpath, queue.spool.rootpath)
    except StoreUnavailable:
        return []
    try:
        batches = snapshot.batches(selection)
        items = islice((item for batch in batches for item in batch), selection.limit)
        return [Waiting(recipient=item.recipient, in_flight=item.in_flight) for item in items]
    finally:
        snapshot.close()
