"""The options of single parts of the server, derived from the settings as a whole. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mqcd.config.advice import Advice, Shaping, SuppressionList, comparable
from mqcd.config.kinds.overriding import given
from mqcd.config.settings import NetworkSettings, QueueSettings, ReportSettings, Settings
from mqcd.core.address import normal_domain
from mqcd.core.queueing.holding import HeldDomain, Holding
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.eventlog.files import Source
from mqcd.eventlog.pseudonyms import Pseudonyms
from mqcd.eventlog.retention import Retention
from mqcd.ops.http.hosts import KnownHosts
from mqcd.ops.metrics.breakdown import Breakdown
from mqcd.queue.memory.shard_state import Options


def schedule_of(settings: Settings, shapings: Sequence[Shaping] = ()) -> RetrySchedule:
    """The retry schedule that the settings state; `shapings` is advice, which has schedules, too."""
    queue, deliver = settings.queue, settings.deliver
    servers = [listener.server for listener in settings.submit.listeners]
    holds = [each.hold_max for each in servers if each.offers_hold]
    others = [
        holds,
        *(zone.retry_delays for zone in deliver.zones),
        *(entry.retry_delays for entry in deliver.destinations),
        *(piece.retry_delays for piece in shapings),
    ]
    return RetrySchedule(
        delays=queue.retry_delays,
        maxtime=queue.retry_maxtime,
        maxtime_reports=queue.retry_maxtime_reports,
        jitter=queue.retry_jitter / 100,
        elsewhere=max((max(delays) for delays in others if delays), default=0),
        warning=settings.report.delay_warning if settings.report.generate_ndr else 0,
        warn_all=settings.report.warn_all,
        holding=holding_of(queue),
    )


def report_of(settings: Settings) -> ReportSettings:
    """Those of the reporting task, which takes a claim of fewer than `queuecache` for the last."""
    report, most = settings.report, settings.queue.maxmemoryqueue
    return replace(report, queuecache=min(report.queuecache, most or report.queuecache))


def holding_of(queue: QueueSettings) -> Holding:
    """The domains whose mail is held."""
    return Holding(
        domains=tuple(HeldDomain(normal_domain(each.name), each.mode, each.user) for each in queue.held),
        maxtime=queue.held_maxtime,
        probe_interval=queue.held_probe_interval,
    )


def options_of(settings: Settings, schedule: RetrySchedule, key: bytes = b"", shard: int = 0) -> Options:
    """The options of a shard; `key` is the one of `daemon.hashkey`."""
    return Options(
        settings=settings.queue,
        schedule=schedule,
        source=Source(node=settings.ops.node, shard=shard, key=key),
        events=settings.ops.events.rootpath,
        retention=retention_of(settings),
    )


def retention_of(settings: Settings) -> Retention:
    """How long event files are kept."""
    return Retention(maxage=settings.ops.events.maxage, maxsize=settings.ops.events.maxsize)


def suppressions_of(advice: Advice, key: bytes = b"") -> SuppressionList:
    """The recipients that advice suppresses; hashed where the event log hashes addresses."""
    naming = Pseudonyms(key).address if key else comparable
    return SuppressionList(listed=advice.suppressions, naming=naming)


def own_names(settings: Settings) -> frozenset[str]:
    """The host names that this server announces, also to clients of some networks alone."""
    names = {settings.application.announcehost, settings.deliver.client.announcehost}
    for listener in settings.submit.listeners:
        names.add(listener.server.announcehost)
        for network in listener.server.remotenets:
            names.add(given(network, NetworkSettings).get("announcehost", ""))
    return frozenset(names - {"localhost", ""})


def ops_hosts(settings: Settings) -> KnownHosts:
    """The host names that the ops listener accepts."""
    return KnownHosts({settings.ops.node, *own_names(settings), *settings.ops.hosts})


def breakdown_of(settings: Settings) -> Breakdown:
    """Counters for what the settings name."""
    return Breakdown(
        settings.ops.metrics.sites,
        listeners=[each.name for each in settings.submit.listeners],
        zones=[each.name for each in settings.deliver.zones],
    )
