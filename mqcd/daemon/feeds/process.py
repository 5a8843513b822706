"""The process of the feeds (`python -m` this module): each in a task, until the server ends."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator

from mqcd.core.ports import Clock
from mqcd.daemon.feeds.terms import TRACES, Terms
from mqcd.daemon.host.loop import run_loop
from mqcd.disk.durable import Disk
from mqcd.feeds import feed
from mqcd.feeds.feed import Feed
from mqcd.feeds.position import Positions
from mqcd.feeds.reader import Reader, chooser
from mqcd.feeds.sink import Sink
from mqcd.net.clock import SystemClock
from mqcd.ops.log.log import Log
from mqcd.queue.helper import pipe

log = logging.getLogger("mqcd.feeds")


def child(channel: pipe.Channel) -> None:
    """The life of a child of the server."""
    given: tuple[Terms, list[int]] | None = channel.receive()
    if given is not None:
        sys.exit(run_loop(lambda: _run(given[0], channel.fd)))


async def _run(terms: Terms, server: int) -> int:
    clock = SystemClock()
    output = Log(clock, sys.stderr, terms.log)
    output.attach()
    ended = asyncio.Event()
    # Nothing more is said on it: what can be read is its end.
    asyncio.get_running_loop().add_reader(server, ended.set)
    feeds = [asyncio.create_task(each.run()) for each in feeds_of(terms, clock)]
    ending = asyncio.create_task(ended.wait())
    try:
        done, _ = await asyncio.wait([ending, *feeds], return_when=asyncio.FIRST_COMPLETED)
        for each in done - {ending}:
            log.error("a feed has failed", exc_info=each.exception())
        return 0 if ending in done else 1
    finally:
        for each in feeds:
            each.cancel()
        await asyncio.gather(*feeds, return_exceptions=True)
        output.stop()


def feeds_of(terms: Terms, clock: Clock) -> Iterator[Feed]:
    """All that the settings name."""
    disk = Disk()
    reader, positions = Reader(disk, terms.events), Positions(disk, terms.feeds.rootpath)

    def made(own: feed.Terms, sink: Sink) -> Feed:
        return Feed(own, sink, reader, positions, clock)

    for each in terms.feeds.webhooks:
        from mqcd.feeds.webhook import Webhook

        wants = chooser(each.events, each.tenants)
        own = feed.Terms(name=each.name, most=each.most, chooses=wants, from_start=each.from_start)
        yield made(own, Webhook(each, clock, disk))
    if terms.feeds.traces.endpoint:
        from mqcd.feeds.traces import Traces, wanted

        own = feed.Terms(name=TRACES, most=terms.feeds.traces.most, chooses=wanted)
        yield made(own, Traces(terms.feeds.traces.endpoint, terms.node))


if __name__ == "__main__":
    sys.exit(pipe.serve(sys.argv[1:], child))
