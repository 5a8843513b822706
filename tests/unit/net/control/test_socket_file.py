"""The control socket in the file system: modes, what a killed server left, links, two servers, long paths."""

from __future__ import annotations

import asyncio
import grp
import logging
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqcd.core.errors import ConfigError
from mqcd.net.control.client import Control, NoAccess, NoAnswer
from mqcd.net.control.socket_file import ControlSocket
from mqcd.ops.http.server import Answer, HttpServer, Request
from tests.fakes.clock import FakeClock


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def own_group() -> str:
    return grp.getgrgid(os.getgid()).gr_name


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_it_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        control = ControlSocket(tmp_path / "c.sock")
        with control.bind():
            assert mode(tmp_path / "c.sock") == 0o600
            assert mode(tmp_path / "c.sock.lock") & 0o077 == 0
    finally:
        os.umask(before)
    control.close()
    control.close()
    assert not (tmp_path / "c.sock").exists()


def test_a_group_may_be_let_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    control = ControlSocket(tmp_path / "c.sock", own_group())
    tmp_path.chmod(0o700)
    with control.bind(), caplog.at_level(logging.WARNING):
        assert mode(tmp_path / "c.sock") == 0o660
        assert (tmp_path / "c.sock").lstat().st_gid == os.getgid()
    control.close()
    assert "chmod g+x" in caplog.text


def test_a_group_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='no group "no-such-group"'):
        ControlSocket(tmp_path / "c.sock", "no-such-group").bind()


def test_what_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    control = ControlSocket(path)
    with control.bind() as bound:
        bound.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    control.close()


def test_a_second_server_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    first, second = ControlSocket(path), ControlSocket(path)
    with first.bind():
        there = path.lstat().st_ino
        with pytest.raises(ConfigError, match=r"mqcd\.xml:3: another server has"):
            second.bind("mqcd.xml:3")
        second.close()
        assert path.lstat().st_ino == there
    first.close()
    with second.bind():
        first.close()
        assert path.exists()
    second.close()


def test_a_file_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    path.write_text("mail")
    with pytest.raises(ConfigError, match="not a socket"):
        ControlSocket(path).bind()
    assert path.read_text() == "mail"


@pytest.mark.parametrize("name", ["c.sock", "c.sock.lock"])
def test_links_are_not_followed(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    (tmp_path / name).symlink_to(target)
    with pytest.raises(ConfigError):
        ControlSocket(tmp_path / "c.sock").bind()
    assert not target.exists()


def test_a_place_that_cannot_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="ops/control@path: cannot make"):
        ControlSocket(tmp_path / "file" / "c.sock").bind()


def test_a_directory_that_is_missing_is_made(tmp_path: Path) -> None:
    control = ControlSocket(tmp_path / "new" / "c.sock")
    with control.bind():
        assert mode(tmp_path / "new") == 0o700
    control.close()


async def test_a_long_path_is_served_and_asked(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 120) / "c.sock"
    path.parent.mkdir()
    asked: list[Request] = []

    def page(request: Request) -> Answer:
        asked.append(request)
        return Answer(body=b"here")

    control, server = ControlSocket(path), HttpServer({"/page": page}, FakeClock())
    await server.serve(control.bind())
    try:
        assert await in_thread(Control(path)) == (200, "here")
    finally:
        await server.stop()
        control.close()
    assert asked[0].uid == os.getuid()
    with pytest.raises(NoAnswer, match="no server runs"):
        Control(path).get("/page", 5)


async def in_thread(control: Control) -> tuple[int, str]:
    return await asyncio.to_thread(control.get, "/page", 5)


def test_a_link_is_not_asked(tmp_path: Path) -> None:
    control = ControlSocket(tmp_path / "c.sock")
    with control.bind() as bound:
        bound.listen()
        (tmp_path / "link").symlink_to(tmp_path / "c.sock")
        with pytest.raises(NoAnswer, match="not a socket"):
            Control(tmp_path / "link").get("/page", 5)
    control.close()


@contextmanager
def nobody() -> Iterator[None]:
    """As a user to whom things may be forbidden."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_socket_of_another_user_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    control = ControlSocket(path)
    with control.bind() as bound:
        bound.listen()
        path.chmod(0)
        with nobody(), pytest.raises(NoAccess, match="Permission denied"):
            Control(path).get("/page", 5)
    control.close()
