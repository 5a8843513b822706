"""The process: what keeps it from starting, and with which exit code it says so."""

from __future__ import annotations

import asyncio
import io
import os
import pwd
import signal
import threading
from pathlib import Path

import pytest

from mqcd.config.load import Loaded, load
from mqcd.config.problems import BadConfiguration
from mqcd.config.settings import Settings
from mqcd.daemon.host.cutter import Cutter
from mqcd.daemon.host.loop import loop_factory
from mqcd.daemon.host.privileges import Identity
from mqcd.daemon.process import Process
from mqcd.daemon.server import Server
from mqcd.daemon.start import run
from tests.e2e.kit.waiting import poll
from tests.unit.daemon.support import write_conf

pytestmark = pytest.mark.usefixtures("process_as_before")


def loader(conf: Path) -> Loaded:
    return load(conf, var=None, hostname="mx.example.org")


class Told(io.StringIO):
    """The log; wakes whoever waits for a word in it."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()
        self._seen = 0

    def write(self, text: str) -> int:
        self._news.set()
        return super().write(text)

    async def until(self, word: str) -> str:
        """What was said since the last call, up to a line with `word`."""
        while word not in (said := self.getvalue()[self._seen :]):
            self._news.clear()
            await self._news.wait()
        self._seen += len(said)
        return said


def begin(conf: Path) -> tuple[Told, asyncio.Future[int]]:
    """A process in this one: its log and its exit code to come."""
    log = Told()
    process = Process(loader(conf), lambda: loader(conf), conf, stream=log)
    return log, asyncio.ensure_future(process.main())


async def test_a_signal_stops_it_and_a_second_one_changes_nothing(tmp_path: Path) -> None:
    conf = write_conf(tmp_path)
    log, main = begin(conf)
    await log.until("event=ready")
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert await main == 0
    said = await log.until("event=stopped")
    assert "already stopping" in said
    assert said.rstrip().endswith("event=stopped")


async def test_a_hung_thread_of_the_pool_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes, hung = list[int](), threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        hung.set()

    monkeypatch.setattr("mqcd.daemon.process.Cutter", lambda _: Cutter(1, end))
    log, main = begin(write_conf(tmp_path))
    await log.until("event=ready")
    waiting = asyncio.get_running_loop().run_in_executor(None, hung.wait)
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        await main
        assert codes == [0]
    finally:
        hung.set()
        await waiting


async def test_a_stop_without_threads_to_be_had_is_in_good_order(tmp_path: Path) -> None:
    conf = write_conf(tmp_path)
    log, main = begin(conf)
    await log.until("event=ready")
    before = threading.stack_size(1 << 40)
    try:
        with pytest.raises(RuntimeError):
            threading.Thread(target=print).start()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await main == 0
    finally:
        threading.stack_size(before)
    said = await log.until("event=stopped")
    assert "level=error" not in said
    assert "level=warning" not in said


def test_a_start_without_threads_to_be_had_is_exit_code_1(tmp_path: Path) -> None:
    conf = write_conf(tmp_path)
    before = threading.stack_size(1 << 40)
    try:
        assert run(lambda: loader(conf), conf) == 1
    finally:
        threading.stack_size(before)
    assert not (tmp_path / "var").exists()


def test_a_run_without_threads_at_its_end_has_its_exit_code(tmp_path: Path) -> None:
    conf = write_conf(tmp_path)
    before = threading.stack_size()

    def stop() -> None:
        poll(lambda: (tmp_path / "var" / "control.sock").exists() or None, "the control socket")
        threading.stack_size(1 << 40)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        assert run(lambda: loader(conf), conf) == 0
    finally:
        threading.stack_size(before)
        thread.join()


async def test_sighup_takes_new_settings_and_refuses_wrong_ones(tmp_path: Path) -> None:
    conf = write_conf(tmp_path)
    log, main = begin(conf)
    await log.until("event=ready")
    write_conf(tmp_path, retry_delays="5m", node="n2")
    os.kill(os.getpid(), signal.SIGHUP)
    said = await log.until("needs a restart")
    assert 'msg="SIGHUP: took over: mta/queue/retry_delays"' in said
    assert "needs a restart: ops/node" in said
    write_conf(tmp_path, retry_delays="soon")
    os.kill(os.getpid(), signal.SIGHUP)
    said = await log.until("the old one stays")
    assert "mqcd.xml:5: mta/queue/retry_delays" in said
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == 0


async def test_sighup_before_the_open_counts_and_so_do_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = write_conf(tmp_path)
    log, main = begin(conf)
    opens = Server.open

    async def open_late(server: Server) -> None:
        write_conf(tmp_path, retry_delays="5m")
        os.kill(os.getpid(), signal.SIGHUP)
        assert "SIGHUP: took over: mta/queue/retry_delays" in await log.until("SIGHUP")
        await opens(server)

    monkeypatch.setattr(Server, "open", open_late)
    await log.until("event=ready")
    write_conf(tmp_path, retry_delays="6m")
    os.kill(os.getpid(), signal.SIGHUP)
    await log.until("SIGHUP: took over: mta/queue/retry_delays")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == 0


async def test_a_reload_that_fails_does_not_prevent_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, main = begin(write_conf(tmp_path))
    await log.until("event=ready")

    def fail(_server: Server, _settings: Settings, _tls: object) -> None:
        raise RuntimeError("a mistake")

    with monkeypatch.context() as patch:
        patch.setattr(Server, "reload", fail)
        os.kill(os.getpid(), signal.SIGHUP)
        assert "in effect in part" in await log.until("a mistake")
    os.kill(os.getpid(), signal.SIGHUP)
    await log.until("no setting has changed")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == 0


async def test_sighup_reads_beside_the_loop_and_names_no_change(tmp_path: Path) -> None:
    conf = write_conf(tmp_path)
    go_on, readers = threading.Event(), list[str]()

    def slowly() -> Loaded:
        readers.append(threading.current_thread().name)
        # While the loop waits for it, this never comes.
        assert go_on.wait(60)
        return loader(conf)

    log = Told()
    main = asyncio.ensure_future(Process(loader(conf), slowly, conf, stream=log).main())
    await log.until("event=ready")
    os.kill(os.getpid(), signal.SIGHUP)
    while not readers:
        await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGHUP)
    go_on.set()
    await log.until("no setting has changed")
    await log.until("no setting has changed")
    assert len(readers) == 2
    assert threading.main_thread().name not in readers
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == 0


async def test_a_configuration_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    conf = write_conf(tmp_path)

    def never() -> Loaded:
        raise RecursionError("too deep")

    log = Told()
    main = asyncio.ensure_future(Process(loader(conf), never, conf, stream=log).main())
    await log.until("event=ready")
    os.kill(os.getpid(), signal.SIGHUP)
    await log.until("the old one stays")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == 0


async def test_a_bad_tls_file_prevents_start_and_reload(tmp_path: Path) -> None:
    wrong = f'<client><trust file="{tmp_path}/absent"/></client>'
    place = "mqcd.xml:16: mta/deliver/client/trust@file"
    log, main = begin(write_conf(tmp_path, deliver=wrong))
    assert await main == 1
    assert place in await log.until("cannot start")
    log, main = begin(write_conf(tmp_path))
    await log.until("event=ready")
    write_conf(tmp_path, deliver=wrong)
    os.kill(os.getpid(), signal.SIGHUP)
    assert place in await log.until("the old one stays")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == 0


async def test_a_part_that_fails_stops_it_with_1(tmp_path: Path) -> None:
    conf = write_conf(tmp_path)
    log, main = begin(conf)
    await log.until("event=ready")

    def fail() -> None:
        raise RuntimeError("a mistake")

    thread = threading.Thread(target=fail, name="the-committer")
    thread.start()
    thread.join()
    assert await main == 1
    said = await log.until("event=stopped")
    assert "thread the-committer has failed" in said
    assert "a mistake" in said


class Becoming(Identity):
    """Root until it becomes the user; notes what of the control socket was there then."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.before: list[bool] = []

    def euid(self) -> int:
        return 0

    def become(self, user: pwd.struct_passwd) -> None:
        self.before.append(self._socket.exists())


async def test_the_control_socket_is_made_by_the_servers_user(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    conf = write_conf(tmp_path, application=f"<user>{me}</user>")
    socket = tmp_path / "var" / "control.sock"
    identity, log = Becoming(socket), Told()
    process = Process(loader(conf), lambda: loader(conf), conf, stream=log, identity=identity)
    main = asyncio.ensure_future(process.main())
    await log.until("event=ready")
    assert identity.before == [False]
    assert socket.exists()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await main == 0


async def test_a_control_socket_that_cannot_be_made_is_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    conf = write_conf(tmp_path, ops_more=f'<control path="{tmp_path}/file/c.sock"/>')
    log, main = begin(conf)
    assert await main == 1
    assert "ops/control: cannot make" in log.getvalue()


def test_an_unknown_user_is_exit_code_1(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    conf = write_conf(tmp_path, application="<user>nobody-of-that-name</user>")
    assert run(lambda: loader(conf), conf) == 1
    assert 'there is no user \\"nobody-of-that-name\\"' in capfd.readouterr().err
    assert not (tmp_path / "var").exists()


def test_a_bad_configuration_is_the_callers(tmp_path: Path) -> None:
    conf = write_conf(tmp_path, retry_delays="soon")
    with pytest.raises(BadConfiguration):
        run(lambda: loader(conf), conf)


def test_it_has_a_loop() -> None:
    factory = loop_factory() or asyncio.new_event_loop
    loop = factory()
    assert loop.run_until_complete(asyncio.sleep(0, "done")) == "done"
    loop.close()
