"""The pages of a running server, for the ops listener and for commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from mqcd import __version__
from mqcd.core.errors import StoreUnavailable
from mqcd.core.ports import Clock
from mqcd.daemon.advised import Adviser
from mqcd.daemon.control.actions.batches import Batches
from mqcd.daemon.control.actions.ruling import Ruling
from mqcd.daemon.control.api.binding import Given, Handler, answering, bind, json_line
from mqcd.daemon.control.api.openapi import describe
from mqcd.daemon.control.api.operation import LINES
from mqcd.daemon.control.api.table import TABLE
from mqcd.daemon.control.browsing import Browsing
from mqcd.daemon.control.explaining import explain_live
from mqcd.daemon.control.held import HELD, HeldRequests
from mqcd.daemon.control.injecting import Injecting
from mqcd.daemon.control.keeping import Keeping
from mqcd.daemon.control.live.listening import Listening
from mqcd.daemon.control.live.tracing import Tracing
from mqcd.daemon.control.looking import CONTENT, MOMENT, RECORDS, UNFILED, Looking
from mqcd.daemon.control.rows import connection_rows, destination_rows, lane_rows, stuck_rows
from mqcd.daemon.control.switches import Switches
from mqcd.daemon.derived import suppressions_of
from mqcd.daemon.feeds.figures import Feeds
from mqcd.daemon.listeners.local import LocalMail
from mqcd.daemon.observers import Observers
from mqcd.daemon.storing import Described, ServedStore
from mqcd.deliver.service import Deliverer
from mqcd.ops.http.pages import pages
from mqcd.ops.http.server import Answer, Page, Request, Resource
from mqcd.ops.http.server import Pages as PageTable
from mqcd.ops.log.log import LogEvent
from mqcd.ops.metrics.lag import LoopLag
from mqcd.ops.metrics.metrics import DeliveryFigures, Metrics
from mqcd.queue.store import ClusterStore
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.submit.door import Door


@dataclass(kw_only=True)
class Pages:
    """What the pages show and act on."""

    store: ServedStore
    described: Described
    deliverer: Deliverer
    doors: Sequence[Door]
    adviser: Adviser
    batches: Batches
    ruling: Ruling
    held: HeldRequests
    observers: Observers
    lag: LoopLag
    clock: Clock
    log_event: LogEvent
    key: bytes
    """Key of the hashes that stand for addresses in advice; b"" = addresses are in clear."""
    not_ready: Callable[[], Sequence[str]]
    """Reasons for /readyz."""
    records_unknown: Callable[[], str]
    """Why the queue has no figures; "" = it has."""
    keeping: Keeping
    switches: Switches
    local: LocalMail | None = None
    feeds: Feeds | None = None
    """Of the process that speaks for all shards."""

    def __post_init__(self) -> None:
        self.metrics = Metrics(
            self.clock,
            self.observers.meters,
            self.store,
            breakdown=self.observers.breakdown,
            engine=self.store.engine if isinstance(self.store, ClusterStore) else None,
            delivery=self._delivery,
            feeds=self.feeds.figures if self.feeds is not None else None,
            omissions=self.observers.omissions,
            others={
                "mqcd_store_info": lambda: {self.described.labels(): 1},
                "mqcd_listener_open_connections": lambda: {
                    door.settings.name: door.sessions for door in self.doors
                },
                "mqcd_advice_pieces": self.adviser.counts,
                "mqcd_rules": self.ruling.counts,
                "mqcd_paused": self.switches.counts,
                "mqcd_loop_lag_seconds": lambda: self.lag.worst_ms() / 1000,
            },
        )

    def for_ops(self) -> Mapping[str, Page]:
        """By path."""
        made = dict(pages(self.metrics, self.not_ready, self.lag.worst_ms))
        made["/metrics"] = self._when_known(made["/metrics"])
        return made

    def for_commands(self) -> PageTable:
        """By path, the ops listener's included. Addresses and their routes are not shown over TCP."""
        return {
            # Commands read the files of the clustered-file queue themselves.
            **(self._inside(self.described.queue) if self.described.queue is not None else {}),
            **self.for_ops(),
            HELD: Resource(post=self._when_known(answering(self.held.page))),
            **bind(TABLE, self._handlers()),
        }

    def _handlers(self) -> Mapping[str, Handler]:
        """By operation."""
        browsing = Browsing(self.store, self.clock, self.batches.resolve)
        listening = Listening(self.observers.all, self.clock)
        tracing = Tracing(self.doors, self.deliverer, self.clock, self.log_event)
        of_queue: Mapping[str, Handler] = {
            "listRecipients": browsing.recipients,
            "countRecipients": browsing.count,
            "listAreas": browsing.areas,
            "showMessage": browsing.message,
            "readContent": browsing.content,
            "addMessage": Injecting(self.local).add,
            "beginBatch": self.batches.ask,
            "listBatches": self.batches.progress,
            "listDestinations": lambda _, __: self._destinations(),
            "listLanes": lambda _, __: lane_rows(self.deliverer.lanes()),
            "listStuck": lambda _, __: stuck_rows(self.deliverer.stuck()),
            "explain": self._explain,
            "listRules": self.ruling.list,
            "addRule": self.ruling.add,
            "cancelRule": self.ruling.cancel,
        }
        return {
            **{name: self._if_known(handler) for name, handler in of_queue.items()},
            "pause": self._if_known(self.switches.change),
            "showState": self._if_known(self.switches.state),
            "listenToEvents": listening.events,
            "trace": tracing.trace,
            "listConnections": lambda _, __: self._connections(),
            "listSettings": self.keeping.settings,
            "showLogLevel": self.keeping.level,
            "setLogLevel": self.keeping.set_level,
            "describe": lambda _, __: describe(TABLE, __version__),
        }

    def _if_known(self, handler: Handler) -> Handler:
        """Not while records are unknown: the figures would be false zeros."""

        def answer(request: Request, given: Given) -> object:
            if why := self.records_unknown():
                raise StoreUnavailable(why)
            return handler(request, given)

        return answer

    def _connections(self) -> list[dict[str, object]]:
        sessions = [view for door in self.doors for view in door.views()]
        return connection_rows(sessions, self.deliverer.connections())

    def _inside(self, queue: StoredQueue) -> Mapping[str, Resource]:
        looking = Looking(queue)
        found = {
            RECORDS: looking.records,
            MOMENT: looking.moment,
            CONTENT: looking.content,
            UNFILED: looking.events,
        }
        return {path: Resource(post=self._when_known(answering(page))) for path, page in found.items()}

    def _when_known(self, page: Page) -> Page:
        """503 while records are unknown: the figures would be false zeros."""

        def answer(request: Request) -> Answer | Awaitable[Answer]:
            if why := self.records_unknown():
                return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body=f"{why}\n".encode())
            return page(request)

        return answer

    def _delivery(self, sites: Container[str]) -> DeliveryFigures:
        gauges = self.deliverer.gauges(sites)
        return DeliveryFigures(
            lanes=gauges.lanes,
            suspended=self.deliverer.suspended,
            stuck=sum(each.recipients for each in self.deliverer.stuck()),
            connections=gauges.connections,
            site_connections=gauges.site_connections,
            waiting=gauges.waiting,
            oldest=gauges.oldest,
        )

    def _destinations(self) -> list[dict[str, object]]:
        now = self.clock.now()
        oldest = dict(self.observers.breakdown.elders.oldest(now))
        for name, received in self.deliverer.gauges(()).oldest.items():
            oldest[name] = min(received, oldest.get(name, received))
        lanes, rules = self.deliverer.lanes(), self.deliverer.standing.suspended()
        return destination_rows(lanes, oldest, self.observers.last_replies.by_name, now, rules)

    async def _explain(self, _request: Request, given: Given) -> Answer:
        listed, asked = suppressions_of(self.adviser.advice, self.key), given.get("q", "")
        found = await explain_live(self.store, self.deliverer, listed, asked, given.get("sender", ""))
        return Answer(body=b"".join(map(json_line, found)), content_type=LINES)
