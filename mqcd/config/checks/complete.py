"""Completes settings: inherits values, applies caps, and finds contradictions.

Pure: works on values and on the set of paths that were given. Each remark is a path and a text; the
loader adds file and line.
"""

import dataclasses
import ipaddress
import pathlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from mqcd.config.checks.faults import LISTENER, RELAY, Faults, Remarks, listeners, numbered, relays
from mqcd.config.checks.listeners import (
    greylists_of_listeners,
    lmtp_of_listeners,
    logins_of_listeners,
    odmr_of_listeners,
    tls_of_listeners,
    tls_of_relays,
)
from mqcd.config.checks.page import page, with_page
from mqcd.config.checks.rules import reply_rules
from mqcd.config.kinds.overriding import given as given_in
from mqcd.config.settings import (
    CLUSTER,
    LOCAL,
    DeliverSettings,
    ListenerSettings,
    Mechanism,
    NetworkSettings,
    QueueSettings,
    QuotaBy,
    RelaySettings,
    ReportSettings,
    Settings,
    TenantBy,
)
from mqcd.config.settings.queue import LEAST_GRANULARITY, MOST_SHARDS

PRODUCT = "mqcd"
SLAVE_CONNECTIONS = 500
"""maxconnections where a default relay takes all mail and nothing else is said: Mailismus's figure."""

_ALL_IPV4 = str(ipaddress.IPv4Address(0))
_SHARD = "mta/queue/shards/shard"
_ZONE = "mta/deliver/zones/zone"
_WEBHOOK = "ops/feeds/webhooks/webhook"


def complete(settings: Settings, given: Collection[str]) -> Settings:
    """Fill in what one block takes from another, and cap what has a cap."""
    host = settings.application.announcehost
    made = tuple(_listener(listener, host) for listener in settings.submit.listeners)
    return dataclasses.replace(
        settings,
        queue=_queue(settings.queue, given),
        submit=dataclasses.replace(settings.submit, listeners=made),
        deliver=_deliver(settings.deliver, host, given),
        report=_report(settings.report, host),
        ops=with_page(settings.ops, given),
    )


def _queue(queue: QueueSettings, given: Collection[str]) -> QueueSettings:
    journal = queue.journal
    if queue.places:
        queue = _listed(queue, given)
    return dataclasses.replace(
        queue,
        journal=dataclasses.replace(journal, inline_max=min(journal.inline_max, journal.most_inline)),
        retry_maxtime_reports=min(queue.retry_maxtime_reports, queue.retry_maxtime),
        retry_granularity=max(queue.retry_granularity, LEAST_GRANULARITY),
    )


def _listed(queue: QueueSettings, given: Collection[str]) -> QueueSettings:
    """As many shards as the list has. The roots of the first are the queue's own, given here or there."""
    first = queue.places[0]
    root, spool = queue.rootpath, queue.spool
    if first.rootpath is not None and "mta/queue/rootpath" not in given:
        root = first.rootpath
    if first.spool is not None and "mta/queue/spool/rootpath" not in given:
        spool = dataclasses.replace(spool, rootpath=first.spool)
    return dataclasses.replace(queue, shards=len(queue.places), rootpath=root, spool=spool)


def _listener(listener: ListenerSettings, host: str) -> ListenerSettings:
    server = listener.server
    announced = server.announcehost or host
    networks = tuple(_network(each, announced, host) for each in server.remotenets)
    greeting = _greeting(server.smtpgreet, announced)
    server = dataclasses.replace(server, announcehost=announced, smtpgreet=greeting, remotenets=networks)
    return dataclasses.replace(listener, server=server)


def _network(network: NetworkSettings, announced: str, host: str) -> NetworkSettings:
    """`announced`: by the listener, `host`: by the application."""
    own = given_in(network, NetworkSettings)
    changed: dict[str, Any] = {}
    if "announcehost" in own:
        announced = changed["announcehost"] = own["announcehost"] or host
    if "smtpgreet" in own:
        changed["smtpgreet"] = _greeting(own["smtpgreet"], announced)
    return dataclasses.replace(network, **changed)


def _greeting(text: str, host: str) -> str:
    """Mailismus's greeting begins with %H%; here the host name always comes first (RFC 5321, 4.2)."""
    greeting = text.removeprefix("%H%").strip()
    return greeting.replace("%H%", host).replace("%PRODNAME%", PRODUCT)


def _deliver(deliver: DeliverSettings, host: str, given: Collection[str]) -> DeliverSettings:
    client = dataclasses.replace(deliver.client, announcehost=deliver.client.announcehost or host)
    only_default = len(deliver.relays) == 1 and _takes_all(deliver.relays[0])
    connections = deliver.maxconnections
    if only_default and "mta/deliver/maxconnections" not in given:
        connections = SLAVE_CONNECTIONS
    return dataclasses.replace(deliver, client=client, maxconnections=connections)


def _report(report: ReportSettings, host: str) -> ReportSettings:
    return dataclasses.replace(
        report,
        announcemta=report.announcemta or host,
        ndr_from=report.ndr_from or f"postmaster@{_mail_domain(host)}",
    )


def _mail_domain(host: str) -> str:
    """A host's name less its first label, as long as what is left is still a domain and not a TLD."""
    _, _, rest = host.partition(".")
    return host if host.startswith("[") or "." not in rest else rest


# ---------------------------------------------------------------- what cannot be


def contradictions(settings: Settings, faults: Faults) -> Remarks:
    """Contradictions in settings after `complete`.

    A value that did not parse counts as left out: what follows from that is not its writer's fault.
    """
    for check in _CHECKS:
        yield from (remark for remark in check(settings) if remark[0] not in faults)
    for compare in _COMPARISONS:
        yield from (remark for remark in compare(settings, faults) if remark[0] not in faults)


def oddities(written: Settings, given: Collection[str]) -> Remarks:
    """Warnings: settings whose effect may surprise their writer; settings before `complete`."""
    for at, _ in listeners(written):
        if f"{at}@interface" not in given:
            text = "not given: listening on 127.0.0.1 only; name an address to be reached by others"
            yield f"{at}@interface", text
    queue = written.queue
    if queue.retry_maxtime_reports > queue.retry_maxtime and "mta/queue/retry_maxtime_reports" in given:
        yield "mta/queue/retry_maxtime_reports", "longer than retry_maxtime: retry_maxtime counts"
    if queue.retry_granularity < LEAST_GRANULARITY:
        yield "mta/queue/retry_granularity", "less than a second: one second counts"
    if queue.journal.inline_max > queue.journal.most_inline and "mta/queue/journal/inline_max" in given:
        yield "mta/queue/journal/inline_max", "more than an eighth of segmentsize: an eighth counts"
    for at, zone in numbered(_ZONE, written.deliver.zones):
        if not zone.matches:
            yield at, "takes no mail: it has no match"
    yield from _shown_logins(written)
    if queue.store.kind != CLUSTER:
        for path in sorted(filter(_of_cluster, given)):
            yield path, f"no effect: it is of the clustered-file queue, and the store is {queue.store.kind}"


_OF_CLUSTER = ("spool", "journal", "rootpath", "maxclustersize", "maxmemoryqueue", "retry_granularity",
               "prune_graceperiod", "mininodes", "memorybudget")  # fmt: skip
"""Elements of mta/queue that no other store looks at, but for `inline_max`, which listeners do."""


def _of_cluster(path: str) -> bool:
    queue, _, rest = path.partition("mta/queue/")
    return not queue and rest.partition("/")[0] in _OF_CLUSTER and not rest.endswith("/inline_max")


def _shown_logins(written: Settings) -> Remarks:
    for at, relay in relays(written):
        if relay.auth.enabled and relay.ssl.verify is False:
            text = "the login is sent to any certificate; leave verify out, name an authority by client/trust"
            yield f"{at}/ssl@verify", text
        if relay.auth.enabled and relay.auth.cleartext and not relay.ssl.verify:
            yield f"{at}/auth@cleartext", "the login is sent in clear where the relay offers no TLS"


def _roots(settings: Settings) -> Remarks:
    roots = {
        "mta/queue/rootpath": settings.queue.rootpath,
        "mta/queue/spool/rootpath": settings.queue.spool.rootpath,
        "ops/events/rootpath": settings.ops.events.rootpath,
        "ops/advice/rootpath": settings.ops.advice.rootpath,
        **_roots_of_shards(settings.queue),
    }
    for path, root in roots.items():
        same = [other for other, there in roots.items() if there == root and other != path]
        if same:
            yield path, f"{root} is also {same[0]}: each needs a directory of its own"


def _roots_of_shards(queue: QueueSettings) -> dict[str, pathlib.Path]:
    """By path in the file: the first shard's are the queue's own, the others' lie below them if not given."""
    roots: dict[str, pathlib.Path] = {}
    for shard, place in list(enumerate(queue.places))[1:]:
        at, below = f"{_SHARD}[{shard + 1}]", f"shard-{shard}"
        roots[f"{at}@rootpath"] = place.rootpath or queue.rootpath / below
        roots[f"{at}@spool"] = place.spool or queue.spool.rootpath / below
    return roots


def _store(settings: Settings) -> Remarks:
    """What only the clustered-file queue has."""
    queue = settings.queue
    if queue.store.kind == CLUSTER:
        for given in queue.store.given:
            yield f"mta/queue/store/{given.name}", "the clustered-file queue is set in mta/queue itself"
        return
    if queue.shards > 1 or queue.places:
        yield "mta/queue/shards", f"only the clustered-file queue has shards, not {queue.store.kind}"
    if queue.read_only:
        yield "mta/queue/read_only", f"only the clustered-file queue can be, not {queue.store.kind}"


def _shards(settings: Settings) -> Remarks:
    queue = settings.queue
    if len(queue.places) > MOST_SHARDS:
        yield "mta/queue/shards", f"lists {len(queue.places)} shards: {MOST_SHARDS} at most"
    for place in queue.places[:1]:
        for name, own, root in (
            ("rootpath", place.rootpath, queue.rootpath),
            ("spool", place.spool, queue.spool.rootpath),
        ):
            if own not in (None, root):
                yield f"{_SHARD}[1]@{name}", f"is also given for the whole queue, as {root}: leave out one"


_TAKEN = {LISTENER: LOCAL, _WEBHOOK: "traces"}
"""Names that such an item cannot have: something else has them."""
_NAMES: tuple[tuple[str, Callable[[Settings], Sequence[Any]], str, str], ...] = (
    (
        LISTENER,
        lambda settings: settings.submit.listeners,
        "name",
        "names another way in too: give each its own",
    ),
    (_ZONE, lambda settings: settings.deliver.zones, "name", "names another zone too: give each its own"),
    (
        "mta/deliver/destinations/destination",
        lambda settings: settings.deliver.destinations,
        "match",
        "is named twice: put all of it into one element",
    ),
    (
        "mta/deliver/senders/sender",
        lambda settings: settings.deliver.senders,
        "match",
        "is named twice: give it one rate",
    ),
    (
        _WEBHOOK,
        lambda settings: settings.ops.feeds.webhooks,
        "name",
        "names another webhook, or the feed of traces: give each its own",
    ),
)
"""Lists of which each item has another name, and what to do about one that has not. Patterns ignore case."""


def _names(settings: Settings, faults: Faults) -> Remarks:
    for stem, items, attribute, advice in _NAMES:
        fold = str.lower if attribute == "match" else str
        named = [
            (at, getattr(item, attribute)) for at, item in faults.sound(stem, items(settings), attribute)
        ]
        counts = Counter([_TAKEN.get(stem, ""), *(fold(name) for _, name in named)])
        for at, name in named:
            if counts[fold(name)] > 1:
                yield f"{at}@{attribute}", f"{name} {advice}"


def _listener_ports(settings: Settings, faults: Faults) -> Remarks:
    ops = settings.ops
    placed = [*faults.sound(LISTENER, settings.submit.listeners, "interface", "port")]
    taken = Counter((listener.interface, listener.port) for _, listener in placed)
    taken[ops.interface, ops.port] += 1
    if ops.page.enabled:
        taken[ops.page.interface, ops.page.port] += 1
    # It takes IPv4 as well.
    taken.update((_ALL_IPV4, port) for interface, port in list(taken) if interface == "::")
    for at, listener in placed:
        if listener.port and taken[listener.interface, listener.port] > 1:
            where = f"{listener.interface} port {listener.port}"
            yield f"{at}@port", f"another listener, ops or its page has {where} too: choose another"


def _takes_all(relay: RelaySettings) -> bool:
    """Whether it is the default relay."""
    return not (relay.destdomains or relay.senders or relay.sendernets)


def _relays(settings: Settings, faults: Faults) -> Remarks:
    by_domain = [
        (at, relay)
        for at, relay in faults.sound(RELAY, settings.deliver.relays)
        if not (relay.senders or relay.sendernets)
    ]
    domains = Counter(domain for _, relay in by_domain for domain in relay.destdomains)
    default = [at for at, relay in by_domain if _takes_all(relay)]
    for at in default[1:]:
        yield at, "a second default relay: give destdomains or senders to all relays but one"
    for at, relay in by_domain:
        for domain in relay.destdomains:
            if domains[domain] > 1:
                yield f"{at}@destdomains", f"{domain} is named twice: one relay for each domain"


def _own_listeners(settings: Settings, faults: Faults) -> Remarks:
    """Relays that would send mail back to this server."""
    own = [each for _, each in faults.sound(LISTENER, settings.submit.listeners, "interface", "port")]
    for at, relay in faults.sound(RELAY, settings.deliver.relays, "address"):
        for listener in own:
            if listener.port == relay.address.port and _reaches(relay.address.host, listener.interface):
                text = f"is our own listener {listener.name}: mail would come back until it counts as looping"
                yield f"{at}@address", text
                break


def _reaches(host: str, interface: str) -> bool:
    """Whether a host is the machine that listens on an interface, by its name or address."""
    if host == interface:
        return True
    everywhere = interface in (_ALL_IPV4, "::")
    if host == "localhost":
        return everywhere or interface.startswith("127.") or interface in ("::1", "localhost")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    own = address.is_loopback or address.is_unspecified
    if everywhere:
        return own and (address.version == 4 or interface == "::")
    return address.is_unspecified and (interface.startswith("127.") or interface == "::1")


def _zones(settings: Settings, faults: Faults) -> Remarks:
    named = [*faults.sound(LISTENER, settings.submit.listeners, "name")]
    if len(named) < len(settings.submit.listeners):
        return
    known = {LOCAL, *(listener.name for _, listener in named)}
    for path, zone in numbered(_ZONE, settings.deliver.zones):
        for at, match in numbered(f"{path}/match", zone.matches):
            for name in match.listener:
                if name not in known:
                    yield f"{at}@listener", f"no listener is called {name}"


def _logins(settings: Settings) -> Remarks:
    for path, relay in relays(settings):
        auth, at = relay.auth, f"{path}/auth"
        if auth.passwordfile is not None and auth.password.text and not auth.password.from_file:
            yield f"{at}/password", "given twice: keep the text or the file"
        if not auth.enabled or auth.override is Mechanism.EXTERNAL:
            continue
        if not auth.username:
            yield f"{at}/username", "must be given where auth is enabled"
        if not auth.password.text and auth.passwordfile is None:
            yield f"{at}/password", "must be given where auth is enabled, as text or by its file"


def _quotas(settings: Settings) -> Remarks:
    for path, listener in listeners(settings):
        server, at = listener.server, f"{path}/server"
        if server.tenant is TenantBy.HEADER and not server.tenant_header:
            yield f"{at}/tenant@header", "must be given where a header names the tenant"
        for here, quota in numbered(f"{at}/quotas/quota", server.quotas):
            if quota.by in (QuotaBy.CLIENT, QuotaBy.NETWORK):
                for each in quota.match:
                    if not _is_network(each):
                        yield f"{here}@match", f"{each} is no address or network"


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


_CHECKS: tuple[Callable[[Settings], Remarks], ...] = (
    _roots,
    _store,
    _shards,
    _logins,
    logins_of_listeners,
    greylists_of_listeners,
    _quotas,
    tls_of_relays,
    tls_of_listeners,
    lmtp_of_listeners,
    odmr_of_listeners,
    page,
    reply_rules,
)
_COMPARISONS: tuple[Callable[[Settings, Faults], Remarks], ...] = (
    _names,
    _listener_ports,
    _relays,
    _own_listeners,
    _zones,
)
