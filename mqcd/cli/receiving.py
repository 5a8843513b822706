"""What `sink` does once its options are read: serve, show, and sum up at the end."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mqcd.daemon.host.loop import asked_to_end, loop_factory
from mqcd.net.clock import SystemClock
from mqcd.sink.outlet import MessageStore, Outlet, to_line
from mqcd.sink.server import Sink, SinkSettings, start


def run(settings: SinkSettings, store: Path | None, *, quiet: bool, as_json: bool) -> int:
    """Receive until SIGINT or SIGTERM. Raises OSError when the port or the directory cannot be had."""
    kept = MessageStore(store) if store is not None else None
    outlet = Outlet(store=kept, show=None if quiet else _show, as_json=as_json)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(settings, outlet, as_json))
    finally:
        if kept is not None:
            kept.close()
    return 0


async def _serve(settings: SinkSettings, outlet: Outlet, as_json: bool) -> None:
    stopped = asked_to_end()
    try:
        sink = await start(
            settings, now_ms=SystemClock().now, on_received=outlet.received, on_refused=outlet.refused
        )
    except OSError as error:
        # The loop's own text repeats the address in Python's notation.
        text = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, text, f"{settings.host} port {settings.port}") from error
    _begin(sink, settings.host, as_json)
    await stopped.wait()
    await sink.close()
    _sum_up(sink, as_json)


def _begin(sink: Sink, host: str, as_json: bool) -> None:
    if as_json:
        _show(to_line({"event": "listening", "address": host, "port": sink.port}))
    else:
        _show(f"listening on {host} port {sink.port}\n")


def _sum_up(sink: Sink, as_json: bool) -> None:
    counters = sink.counters
    figures = {
        "connections": counters.connections,
        "messages": counters.messages,
        "recipients": counters.recipients,
        "refused": counters.refused,
        "octets": counters.octets,
    }
    if as_json:
        _show(to_line({"event": "end", **figures}))
    else:
        _show(", ".join(f"{count} {name}" for name, count in figures.items()) + "\n")


def _show(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()
