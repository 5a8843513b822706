"""The page's process as the server keeps it: started, started again, ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from mqcd.config.settings import Settings
from mqcd.core.errors import ConfigError
from mqcd.daemon.companions import PAGE, Companion
from mqcd.daemon.page.terms import bind_page, check_page, terms_of
from mqcd.net.clock import SystemClock
from mqcd.page.requirements import check_packages
from tests.unit.config.samples import loaded


def settings_of(tmp_path: Path) -> Settings:
    text = f'<ops><control path="{tmp_path}/control.sock"/><page port="0"/></ops>'
    return loaded(f"<mailserver>{text}</mailserver>").settings


async def until(there: Callable[[], object]) -> None:
    while not there():
        await asyncio.sleep(0.01)


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    sockets = await bind_page(settings, None)
    companion = Companion(PAGE, "the page", terms_of(settings), sockets, SystemClock())
    with ExitStack() as opened:
        opened.callback(companion.close)
        port = sockets[0].getsockname()[1]
        running = asyncio.ensure_future(companion.run())
        await until(lambda: companion.pid)
        first = companion.pid or 0
        sockets[0].listen()
        assert b"HTTP/1.1 303" in await ask(port)
        os.kill(first, signal.SIGKILL)
        await until(lambda: companion.pid not in (first, None))
        assert b"HTTP/1.1 303" in await ask(port)
        running.cancel()
        await asyncio.wait([running])
        assert companion.pid is None


async def test_none_is_bound_where_none_is_wanted() -> None:
    assert await bind_page(loaded("<mailserver/>").settings, None) == []


async def test_a_taken_port_names_its_place(tmp_path: Path) -> None:
    [held] = await bind_page(settings_of(tmp_path), None)
    held.listen()
    text = f'<mailserver><ops><page port="{held.getsockname()[1]}"/></ops></mailserver>'
    with pytest.raises(ConfigError, match="ops/page"):
        await bind_page(loaded(text).settings, None)
    held.close()


def test_a_certificate_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("none")
    text = f'<mailserver><ops><page certfile="{tmp_path}/c.pem"/></ops></mailserver>'
    with pytest.raises(ConfigError, match=r"ops/page@certfile: .*c\.pem"):
        check_page(loaded(text).settings, None)


def test_a_missing_extra_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"uvicorn is missing.*pip install 'mqcd\[page\]'"):
        check_packages(lambda name: None if name == "uvicorn" else name)
