"""The page's process: a child of the server (`python -m` this module), or `mqcd page` by hand.

A child ends when the server does, or when it sees the end of its socket to it. By hand SIGTERM and SIGINT end
it. Exit code 0 after such an end, 1 when it could not start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mqcd.config.load import Loaded
from mqcd.core.errors import MqcdError
from mqcd.daemon.host.loop import asked_to_end, run_loop
from mqcd.daemon.page.terms import bind_page, terms_of
from mqcd.disk.durable import Disk
from mqcd.net.clock import SystemClock
from mqcd.ops.log.log import Log
from mqcd.page.requirements import check_packages
from mqcd.page.terms import Terms
from mqcd.queue.helper import pipe

log = logging.getLogger("mqcd.page")


def run_by_hand(loaded: Loaded, conf: Path) -> int:
    """`mqcd page`. Raises ConfigError."""
    check_packages()
    settings = loaded.settings
    settings = replace(settings, ops=replace(settings.ops, page=replace(settings.ops.page, enabled=True)))

    async def main() -> int:
        return await _serve(terms_of(settings), await bind_page(settings, conf), asked_to_end())

    os.umask(0o077)
    return run_loop(main)


def child(channel: pipe.Channel) -> None:
    """The life of a child of the server."""
    given: tuple[Terms, list[int]] | None = channel.receive()
    if given is None:
        return
    terms, fds = given

    async def main() -> int:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def on_end() -> None:
            loop.remove_reader(channel.fd)
            ended.set()

        # Nothing more is said on it: what can be read is its end.
        loop.add_reader(channel.fd, on_end)
        return await _serve(terms, [socket.socket(fileno=fd) for fd in fds], ended)

    sys.exit(run_loop(main))


async def _serve(terms: Terms, sockets: Sequence[socket.socket], ended: asyncio.Event) -> int:
    # Only here is the extra known to be installed.
    from mqcd.page.access.access import Access
    from mqcd.page.access.holders import Holders
    from mqcd.page.app import make_app
    from mqcd.page.client import ControlClient
    from mqcd.page.parts import Parts
    from mqcd.page.recorder import Recorder
    from mqcd.page.serve import BACKLOG, serve

    clock = SystemClock()
    output = Log(clock, sys.stderr, terms.log)
    output.attach()
    for each in sockets:
        each.listen(BACKLOG)
    name = sockets[0].getsockname()
    output.say("listening", name="page", address=name[0], port=name[1])
    client = ControlClient(terms.control)
    holders = Holders(terms.page.tokens, clock, Disk())
    access = Access(holders, clock, open_to_all=terms.page.open, secure=terms.secure)
    recorder = Recorder(client, clock)
    parts = Parts(terms=terms, client=client, clock=clock, access=access, recorder=recorder, ended=ended)
    saving = asyncio.ensure_future(holders.run())
    recording = asyncio.ensure_future(recorder.run())
    try:
        await serve(make_app(parts), terms, sockets, ended, clock)
        saving.cancel()
        await holders.save()
    except (MqcdError, OSError) as error:
        log.error("the page cannot be served: %s", error)
        return 1
    finally:
        recording.cancel()
        output.stop()
    return 0


if __name__ == "__main__":
    sys.exit(pipe.serve(sys.argv[1:], child))
