"""The process around the server: event loop, signals, exit code.

* SIGTERM and SIGINT stop the server; a second one changes nothing, the stop is under way.
* SIGHUP, also during the start, reads the configuration again, in a thread: mail does not wait for it. One
  with errors is refused, with all of them in the log, and the old one stays. What changed, and what of it
  needs a restart, is in the log.
* Exit code 0 after a stop that was asked for, 1 when the server could not start or a part of it failed:
  a supervisor should start it again then.
* A stop that hangs is cut off after CUT_OFF_SECONDS. That loses nothing: stopping is crashing politely.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

from mqcd.config.load import Loaded
from mqcd.config.problems import BadConfiguration
from mqcd.config.settings import CLUSTER, Settings
from mqcd.core.errors import MqcdError
from mqcd.daemon.host.cutter import Cutter
from mqcd.daemon.host.descriptors import divide, raise_limit
from mqcd.daemon.host.loop import run_loop
from mqcd.daemon.host.privileges import Identity, take_identity
from mqcd.daemon.listeners.checks import check_files
from mqcd.daemon.listeners.listenertls import Loaded as Tls
from mqcd.daemon.server import Server
from mqcd.daemon.shards.role import Role
from mqcd.daemon.shards.supervisor import stops
from mqcd.daemon.stopping import CUT_OFF_SECONDS
from mqcd.net.clock import SystemClock
from mqcd.net.systemd import ALONE, Manager, Notifier
from mqcd.ops.audit.audit import directories as audit_directories
from mqcd.ops.log.log import Log
from mqcd.queue.workers import Workers, ready_pool
from mqcd.stores.choose import directories as directories_of

log = logging.getLogger("mqcd.daemon")

_SWITCH_INTERVAL = 0.0005
"""Seconds a busy thread keeps the interpreter. At the default of 5 ms every commit waits that long for
the event loop to let go."""
_GC_THRESHOLDS = 5_000, 4
"""Thresholds of the garbage collector: new objects before a collection, and collections before the next
generation. Mail under way is thousands of objects without cycles: at the default of 700 collections take 5
percent of the time, at 2000 3 percent, here a thousandth. More would save nothing, and all mail waits for a
collection: at 20,000 and 10 one took 10 to 60 ms while a queue grew."""
_POOL_THREADS = 4
_WATCHDOG = "the service manager's watchdog"

Result = TypeVar("Result")
Load = Callable[[], Loaded]
"""Reads the configuration, now; raises BadConfiguration."""


def run_server(
    loaded: Loaded, load: Load, conf: Path, role: Role | None = None, manager: Manager = ALONE
) -> int:
    """Run the server until a signal stops it; returns the exit code."""
    tune_interpreter()
    freeze_program()
    os.umask(0o077)
    return run_loop(Process(loaded, load, conf, role=role, manager=manager).main)


def tune_interpreter() -> None:
    """Set what a process that holds a queue wants of Python's threads and memory."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.set_threshold(*_GC_THRESHOLDS)


def freeze_program() -> None:
    """Freeze the program's own objects: they are half of what a collection visits, and are never freed."""
    gc.collect()
    gc.freeze()


async def in_daemon_thread(work: Callable[[], Result]) -> Result:
    """Return or raise what `work` does, from a thread that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def finish(result: Result | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast(Result, result))

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:
            failure = error
        # The loop may have ended meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, result, failure)

    threading.Thread(target=run, name="configuration", daemon=True).start()
    return await done


class Process:
    """One run of the server, from its configuration to its exit code."""

    def __init__(
        self,
        loaded: Loaded,
        load: Load,
        conf: Path,
        *,
        stream: TextIO | None = None,
        identity: Identity | None = None,
        role: Role | None = None,
        manager: Manager = ALONE,
    ) -> None:
        """`stream` is where the log goes; None is standard error. `role`: of one shard of several."""
        self._role = role
        self._manager = manager
        self._loaded = loaded
        self._load = load
        self._conf = conf
        self._identity = identity or Identity()
        self._stop = asyncio.Event()
        """Set when the server is to stop, and from the beginning of every stop on."""
        self._server: Server | None = None
        self._reload_asked = False
        """Whether the configuration is to be read, again if `_reloading` reads it now."""
        self._reloading: asyncio.Future[None] | None = None
        self._cutter: Cutter | None = None
        self._clock = SystemClock()
        shard = role.shard if role is not None else None
        self._log = Log(self._clock, stream or sys.stderr, loaded.settings.ops.log, shard=shard)

    async def main(self) -> int:
        """Start, wait, stop."""
        self._log.attach()
        try:
            # What a stop needs is here from the start: by then perhaps no thread can be started any more.
            pool = ready_pool(_POOL_THREADS, "mqcd-pool")
            asyncio.get_running_loop().set_default_executor(pool)
            self._cutter = Cutter(CUT_OFF_SECONDS)
        except (OSError, RuntimeError) as error:
            log.error("the server cannot start: %s", error)
            self._log.flush()
            return 1
        try:
            return await self._run(self._cutter)
        finally:
            # A thread may hang, and the end of the loop would wait for it without a limit.
            await Workers().end(pool)
            self._cutter.call_off()

    async def _run(self, cutter: Cutter) -> int:
        self._listen_to_signals()
        for warning in self._loaded.warnings:
            log.warning("%s", warning)
        settings = self._loaded.settings
        shares = divide(raise_limit(), settings.queue.journal.segments)
        try:
            server = self._server = Server(
                settings,
                clock=self._clock,
                log_to=self._log,
                conf=self._conf,
                shares=shares,
                role=self._role,
                given=self._manager.sockets,
            )
        except MqcdError as error:
            log.error("the server cannot start: %s", error)
            self._log.flush()
            return 1
        server.keeping.lines = self._loaded.lines
        self._listen_to_failures(server)
        code = await self._start(server, settings)
        if code == 0 or self._stop.is_set():
            code = await self._until_stopped(server)
        self._stop.set()
        self._manager.notifier.stopping()
        cutter.arm(code)
        await server.stop()
        await server.guard.end(_WATCHDOG)
        return code

    async def _start(self, server: Server, settings: Settings) -> int:
        queue = settings.queue
        roots = [queue.rootpath, queue.spool.rootpath]
        if queue.store.kind != CLUSTER:
            roots = list(directories_of(queue.store))
        directories = [*roots, settings.ops.events.rootpath]
        # The error of the bind names the cause better than the owner of its directory, as /run may well be.
        others = [*audit_directories(settings.deliver, settings.report), settings.ops.control.path.parent]
        others.append(settings.submit.local.rootpath)
        if queue.read_only:
            # Nothing is made, and the right to write is not needed.
            directories, others = [], []
        try:
            await server.bind()
            take_identity(settings.application.user, directories, self._identity, also=others)
            check_files(settings, self._conf, listens=self._role is None or self._role.listens)
            await server.listen()
            await server.open()
        except (MqcdError, OSError) as error:
            log.error("the server cannot start: %s", error)
            return 1
        self._manager.notifier.ready()
        if self._manager.notifier.watchdog_ms:
            server.guard.spawn(_WATCHDOG, self._keep_alive(self._manager.notifier))
        return 0

    async def _keep_alive(self, notifier: Notifier) -> None:
        """Prove to the service manager that the event loop turns."""
        while True:
            notifier.alive()
            await self._clock.sleep(notifier.watchdog_ms)

    async def _until_stopped(self, server: Server) -> int:
        """0 after a requested stop, 1 when a part has failed."""
        waits = [asyncio.ensure_future(self._stop.wait()), asyncio.ensure_future(server.guard.failed.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return 1 if server.guard.failed.is_set() else 0

    def _listen_to_failures(self, server: Server) -> None:
        """Threads and callbacks have no task whose end could be watched."""
        loop = asyncio.get_running_loop()

        def failed_in_thread(failure: threading.ExceptHookArgs) -> None:
            name = failure.thread.name if failure.thread is not None else "unknown"
            loop.call_soon_threadsafe(server.guard.fail, f"thread {name} has failed", failure.exc_value)

        def in_callback(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            # A connection's failure is its own; a bare callback is part of the machine.
            if "handle" in context and "protocol" not in context and "transport" not in context:
                server.guard.fail(str(context.get("message")), context.get("exception"))
            else:
                loop.default_exception_handler(context)

        threading.excepthook = failed_in_thread
        loop.set_exception_handler(in_callback)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload_signal)
        if self._role is not None:
            loop.add_reader(self._role.alive, self._on_supervisor, self._role.alive)

    def _on_supervisor(self, alive: int) -> None:
        """The supervisor stops, or is gone."""
        asyncio.get_running_loop().remove_reader(alive)
        in_order = stops(alive)
        if not in_order:
            log.error("the supervisor has ended: stopping")
        self._stop.set()
        if self._cutter is not None:
            self._cutter.arm(int(not in_order))

    def _on_stop_signal(self, number: signal.Signals) -> None:
        log.info("%s: %s", number.name, "already stopping" if self._stop.is_set() else "stopping")
        self._stop.set()
        if self._cutter is not None:
            self._cutter.arm(0)

    def _on_reload_signal(self) -> None:
        if self._server is None or self._stop.is_set():
            return
        self._reload_asked = True
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.ensure_future(self._reload(self._server))

    async def _reload(self, server: Server) -> None:
        """Read the configuration and take it over; once more if that was asked for meanwhile."""
        while self._reload_asked and not self._stop.is_set():
            self._reload_asked = False
            fault = "the configuration cannot be read, the old one stays"
            try:
                loaded, tls = await in_daemon_thread(lambda: self._load_all(server))
                fault = "the new configuration is in effect in part, a restart applies the rest"
                if not self._stop.is_set():
                    self._take_over(server, loaded, tls)
            except BadConfiguration as error:
                for line in str(error).split("\n"):
                    log.error("%s", line)
                log.error("SIGHUP: the new configuration has errors; the old one stays")
            except Exception as error:
                log.error("SIGHUP: %s", fault, exc_info=error)

    def _load_all(self, server: Server) -> tuple[Loaded, Tls]:
        """The configuration; its TLS files, filters and users are tried. Raises BadConfiguration."""
        loaded = self._load()
        check_files(loaded.settings, self._conf)
        return loaded, server.tls.load(loaded.settings.submit, self._conf)

    def _take_over(self, server: Server, loaded: Loaded, tls: Tls) -> None:
        for warning in loaded.warnings:
            log.warning("%s", warning)
        server.keeping.lines = loaded.lines
        changes = server.reload(loaded.settings, tls)
        if changes.applied:
            log.info("SIGHUP: took over: %s", ", ".join(changes.applied))
        if changes.needs_restart:
            log.warning("SIGHUP: needs a restart: %s", ", ".join(changes.needs_restart))
        if changes.refused:
            paths = ", ".join(changes.refused)
            log.error("SIGHUP: not in effect, and tried again at the next SIGHUP: %s", paths)
        if not (changes.applied or changes.needs_restart or changes.refused):
            log.info("SIGHUP: no setting has changed")
