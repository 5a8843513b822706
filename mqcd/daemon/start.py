"""`mqcd run`: one server process, or a supervisor with a server process for each shard.

With one shard there is no supervisor: nothing stands between a client and the server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from mqcd.config.load import Loaded
from mqcd.config.problems import BadConfiguration
from mqcd.config.settings import Settings
from mqcd.core.errors import ConfigError, MqcdError, StoreUnavailable
from mqcd.daemon.changes import compare
from mqcd.daemon.companions import Companions
from mqcd.daemon.derived import ops_hosts
from mqcd.daemon.feeds.terms import check_feeds
from mqcd.daemon.host.descriptors import raise_limit
from mqcd.daemon.host.loop import asked_to_end, run_loop
from mqcd.daemon.host.privileges import take_identity
from mqcd.daemon.listeners.checks import check_files
from mqcd.daemon.listeners.listenertls import ListenersTls
from mqcd.daemon.page.terms import bind_page
from mqcd.daemon.places import CONTROL, LISTENERS, OPS, at_port, place_of
from mqcd.daemon.process import Load, freeze_program, in_daemon_thread, run_server, tune_interpreter
from mqcd.daemon.shards import division
from mqcd.daemon.shards.front import Front
from mqcd.daemon.shards.owners import keys_path
from mqcd.daemon.shards.role import Role
from mqcd.daemon.shards.stand_in import STAND_IN_MS, StandIn
from mqcd.daemon.shards.supervisor import FRONT, Part, State, Supervisor, log_plainly
from mqcd.disk.durable import Disk
from mqcd.net.clock import SystemClock
from mqcd.net.control.socket_file import AT_ONCE, ControlSocket
from mqcd.net.listening import bind
from mqcd.net.shared.balance import Mailboxes
from mqcd.net.shared.tokens import SharedTokens
from mqcd.net.shared.tokens import make as tokens_file
from mqcd.net.shared.used_rates import UsedRates
from mqcd.net.shared.used_rates import make as rates_file
from mqcd.net.systemd import Manager
from mqcd.ops.audit.audit import directories as audit_directories
from mqcd.ops.http.server import HttpServer
from mqcd.ops.log.log import Log
from mqcd.queue.roots import Roots, check_place, link_place, roots_of
from mqcd.submit.auth.failures import PLACES, Failures

log = logging.getLogger("mqcd.daemon")


def run(load: Load, conf: Path) -> int:
    """Run until the end of the server; gives the exit code. Raises BadConfiguration."""
    manager = Manager.of(os.environ)
    loaded = _with_strays(load(), manager)
    numbers = [0] if loaded.settings.queue.read_only else division.numbers(loaded.settings)
    if len(numbers) == 1:
        return run_server(loaded, load, conf, manager=manager)
    log_plainly(loaded.settings)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    os.umask(0o077)
    raise_limit()
    if beyond := numbers[division.count(loaded.settings) :]:
        names = ", ".join(f"shard-{shard}" for shard in beyond)
        log.warning(
            "beyond the number of shards, each with a share of what is divided: %s; "
            "remove their directories once they are empty",
            names,
        )
    try:
        return _Shards(loaded.settings, numbers, load, conf, manager).run()
    except (MqcdError, OSError) as error:
        log.error("the server cannot start: %s", error)
        return 1


def _with_strays(loaded: Loaded, manager: Manager) -> Loaded:
    """With a warning for each socket of the service manager that is no listener's."""
    known = {listener.name for listener in loaded.settings.submit.listeners}
    strays = [
        loaded.remark(
            LISTENERS, f"no listener is named {name!r}: nobody answers at that socket of the service manager"
        )
        for name in manager.sockets
        if name not in known
    ]
    return replace(loaded, warnings=(*loaded.warnings, *strays))


class _Shards:
    """What the supervisor starts."""

    def __init__(
        self, settings: Settings, numbers: Sequence[int], load: Load, conf: Path, manager: Manager
    ) -> None:
        self._settings = settings
        self._numbers = numbers
        self._of = division.count(settings)
        self._load = load
        self._conf = conf
        self._manager = manager

    def run(self) -> int:
        """Bind, drop privileges, fork. Raises ConfigError, OSError."""
        with ExitStack() as opened:
            boxes = Mailboxes.make(max(self._numbers) + 1)
            opened.callback(boxes.close)
            by_shard = asyncio.run(self._bind())
            tls = ListenersTls(self._settings.submit)
            tls.use(tls.load(self._settings.submit, self._conf))
            for bound in chain.from_iterable(chain.from_iterable(by_shard.values())):
                opened.enter_context(bound)
            parts = [
                Part(shard, shard, sockets=by_shard[shard] if shard < self._of else ())
                for shard in self._numbers
            ]
            self._drop_privileges()
            # A shard that cannot start is out of service; what holds for all of them ends the server.
            check_files(self._settings, self._conf)
            tune_interpreter()
            freeze_program()
            logins = rates_file(PLACES), rates_file(PLACES)
            shared = tokens_file(), rates_file(), rates_file(), *logins
            front = Part(FRONT, FRONT, sockets=by_shard[FRONT])
            return Supervisor(
                [*parts, front],
                boxes,
                lambda part: self._serve(part, tls, boxes, *shared),
                self._front,
                self._manager.notifier,
            ).run()

    async def _bind(self) -> dict[int, list[list[socket.socket]]]:
        """By shard and listener; the front's is the one of the pages."""
        settings = self._settings
        found: dict[int, list[list[socket.socket]]] = {shard: [] for shard in range(self._of)}
        for index, listener in enumerate(settings.submit.listeners):
            port = listener.port
            with at_port(self._conf, LISTENERS, listener.interface, port, index):
                # Another server of several shards would share the port with this one.
                if given := self._manager.sockets.get(listener.name):
                    for shard in range(self._of):
                        found[shard].append([each.dup() for each in given])
                    continue
                for probe in await bind(listener.interface, port):
                    probe.close()
                for shard in range(self._of):
                    bound = list(await bind(listener.interface, port, shared=True))
                    port = bound[0].getsockname()[1]
                    found[shard].append(bound)
        ops = settings.ops
        with at_port(self._conf, OPS, ops.interface, ops.port):
            found[FRONT] = [list(await bind(ops.interface, ops.port))]
        check_feeds(settings)
        found[FRONT].append(await bind_page(settings, self._conf))
        return found

    def _drop_privileges(self) -> None:
        settings = self._settings
        directories = [settings.queue.rootpath, settings.queue.spool.rootpath, settings.ops.events.rootpath]
        others = [settings.ops.control.path.parent, settings.submit.local.rootpath]
        for shard in self._numbers:
            own = division.settings_of(settings, shard, len(self._numbers))
            # The disk of a shard may be gone: its own process says so.
            with suppress(StoreUnavailable, OSError):
                check_place(*self._places(shard))
                others += [own.queue.rootpath, own.queue.spool.rootpath]
            others += audit_directories(own.deliver, own.report)
        take_identity(settings.application.user, directories, also=others)

    def _places(self, shard: int) -> tuple[Roots, Roots]:
        """Where a shard lies by itself, and where the settings say."""
        queue = self._settings.queue
        return roots_of(shard, queue.rootpath, queue.spool.rootpath), division.own_roots(
            self._settings, shard
        )

    # ------------------------------------------------------------ in the new processes

    def _serve(self, part: Part, tls: ListenersTls, boxes: Mailboxes, tokens: int, *rates: int) -> int:
        def load() -> Loaded:
            loaded, of = self._load(), len(self._numbers)
            return replace(loaded, settings=division.settings_of(loaded.settings, part.shard, of))

        below, own = self._places(part.shard)

        def take_mail() -> None:
            link_place(Disk(), below, own)
            part.say(State.RUNNING)

        used, quotas, failed, known = (UsedRates(each) for each in rates)
        role = Role(
            shard=part.shard,
            sockets=part.sockets,
            tls=tls,
            boxes=boxes,
            tokens=SharedTokens(tokens, len(self._numbers), SystemClock().monotonic),
            used=used,
            quotas=quotas,
            failures=Failures(failed, known),
            alive=part.alive,
            owners=[keys_path(self._settings.ops.control.path, shard) for shard in range(self._of)],
            others={
                shard: division.control_path(self._settings.ops.control.path, shard)
                for shard in self._numbers
                if shard != part.shard
            },
            ready=take_mail,
        )
        # A door closes its sockets when its server stops.
        spare = [[each.dup() for each in bound] for bound in part.sockets]
        code = 1
        try:
            check_place(below, own)
            code = run_server(load(), load, self._conf, role)
        except (BadConfiguration, StoreUnavailable, OSError) as error:
            log.error("the server cannot start: %s", error)
        if code == 0 or part.state is State.RUNNING:
            return code
        log_plainly(self._settings)
        log.error("shard %d is out of service; it is tried again in %d s", part.shard, STAND_IN_MS // 1000)
        part.say(State.OUT)
        balance = role.balance(lambda: "out of service")
        return run_loop(lambda: StandIn(spare, balance, SystemClock()).run(part.alive))

    def _front(self, part: Part) -> int:
        return run_loop(lambda: self._serve_pages(part))

    async def _serve_pages(self, part: Part) -> int:
        settings, clock = self._settings, SystemClock()
        output = Log(clock, sys.stderr, settings.ops.log)
        output.attach()
        ended, asked = asked_to_end(), asyncio.Event()
        # The file may have changed since the supervisor read it.
        asked.set()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, asked.set)
        loop.add_reader(part.alive, ended.set)
        own = settings.ops.control
        front = Front(own.path, self._numbers, self._of, own.batches, settings.queue.grace)
        pages = HttpServer(front.for_ops(), clock, ops_hosts(settings))
        commands = HttpServer(front.for_commands(), clock, most=AT_ONCE)
        control = ControlSocket(settings.ops.control.path, settings.ops.control.group)
        pages.adopt(part.sockets[0][0])

        def take_over(settings: Settings) -> None:
            output.reload(settings.ops.log)
            front.grace_ms = settings.queue.grace
            pages.hosts = ops_hosts(settings)

        try:
            await pages.listen()
            await commands.serve(control.bind(place_of(self._conf, CONTROL)))
            ops = part.sockets[0][0].getsockname()
            output.say("listening", name="ops", address=ops[0], port=ops[1])
            output.say("listening", name="control", address=str(settings.ops.control.path))
            part.say(State.RUNNING)
            companions = Companions(settings, part.sockets[1], clock)
            await _until(ended, companions.run(), self._reload(asked, take_over))
        except (ConfigError, OSError) as error:
            log.error("the pages cannot be served: %s", error)
            return 1
        finally:
            loop.remove_reader(part.alive)
            await pages.stop()
            await commands.stop()
            control.close()
            output.stop()
        return 0

    async def _reload(self, asked: asyncio.Event, take_over: Callable[[Settings], None]) -> None:
        """Read the configuration whenever that is asked for, and apply what a running server can. The shards
        log what changes, and what is wrong."""
        why = "start"
        while True:
            await asked.wait()
            asked.clear()
            try:
                loaded = await in_daemon_thread(self._load)
                take_over(compare(self._settings, loaded.settings).settings)
            except BadConfiguration:
                log.error("%s: the configuration has errors; the front process keeps the old one", why)
            except Exception as error:
                log.error("%s: the front process keeps the old configuration", why, exc_info=error)
            why = "SIGHUP"


async def _until(ended: asyncio.Event, *work: Coroutine[Any, Any, None]) -> None:
    """Do this until then."""
    tasks = [asyncio.ensure_future(each) for each in work]
    await ended.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
