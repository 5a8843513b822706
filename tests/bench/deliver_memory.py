"""How fast delivery alone is: memory store -> deliverer -> a sink in a process of its own.

    python -m tests.bench.deliver_memory [--messages N] [--size OCTETS] [--kept | --single] [--recipients N]

Prints one line for each way of using connections: one per message, and kept ones.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import uvloop

from mqcd.config.settings import ClientSettings, DeliverSettings, HostPort, RelaySettings
from mqcd.core.model import Envelope, Submission
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.deliver.service import Deliverer
from mqcd.net.clock import SystemClock
from mqcd.net.dialer import SystemDialer
from mqcd.sink.server import SinkSettings, start
from tests.fakes.observer import SilentObserver
from tests.fakes.resolver import FakeResolver
from tests.fakes.store import MemoryStore

SCHEDULE = RetrySchedule(delays=(900_000,), maxtime=3_600_000, maxtime_reports=3_600_000)


async def serve_sink() -> None:
    """Take mail until standard input closes; the first line written is the port."""
    sink = await start(SinkSettings(), now_ms=SystemClock().now)
    print(sink.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await sink.close()


async def measure(
    port: int, messages: int, size: int, recipients: int, maxmessages: int
) -> tuple[float, float]:
    """Messages a second from the first claim to the last verdict; CPU time a message, microseconds."""
    clock = SystemClock()
    observer = SilentObserver()
    store = MemoryStore(clock, observer)
    await store.open()
    content = b"Subject: measured\r\n\r\n" + b"x" * 78 + b"\r\n"
    content = (content * (size // len(content) + 1))[: size - 2] + b"\r\n"
    for number in range(messages):
        envelope = Envelope(
            spid=store.reserve(recipients > 1), sender="sender@example.org", received=clock.now()
        )
        names = [f"user{number}-{index}@example.com" for index in range(recipients)]
        await store.enqueue(Submission(envelope=envelope, recipients=names, content=content))
    settings = DeliverSettings(
        maxmessages=maxmessages,
        client=ClientSettings(announcehost="bench.localdomain"),
        relays=(RelaySettings(address=HostPort(host="127.0.0.1", port=port)),),
    )
    deliverer = Deliverer(
        settings,
        SCHEDULE,
        store=store,
        clock=clock,
        resolver=FakeResolver(),
        dialer=SystemDialer(),
        observer=observer,
    )
    began, cpu = time.perf_counter(), time.process_time()
    await deliverer.start()
    while observer.delivered_count < messages * recipients:
        await deliverer.drained()
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    await deliverer.stop(1000)
    if observer.delivered_count != messages * recipients:
        raise SystemExit(f"only {observer.delivered_count} of {messages * recipients} were delivered")
    return messages / took, cpu / messages * 1e6


async def run(options: argparse.Namespace) -> None:
    """Start the sink beside us, and measure."""
    sink = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.deliver_memory",
        "--sink",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        if sink.stdout is None or sink.stdin is None:
            raise SystemExit("the sink has no pipes")
        port = int(await sink.stdout.readline())
        ways = [("one connection per message", 1)] if not options.kept else []
        ways += [("kept connections", 100)] if not options.single else []
        for name, maxmessages in ways:
            rate, cpu = await measure(port, options.messages, options.size, options.recipients, maxmessages)
            print(
                f"{name}: {rate:.0f} messages/s, {cpu:.0f} us of CPU each"
                f" ({options.messages} of {options.size} octets)",
                flush=True,
            )
    finally:
        sink.terminate()
        await sink.wait()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sink", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--recipients", type=int, default=1)
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--single", action="store_true")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_sink() if options.sink else run(options))


if __name__ == "__main__":
    main()
