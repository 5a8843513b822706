"""The file of users: its lines, its mode, its changes, and what a server holds of it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.disk.durable import Disk
from mqcd.submit.users.directory import Directory
from mqcd.submit.users.file import changing, read_users
from mqcd.submit.users.lines import BadUsers, parse_users, rewrite
from mqcd.submit.users.passwords import make_user, verify

ALICE = make_user("alice", "wonderland", plain=True)
BOB = make_user("bob@example.org", "builder")
TEXT = rewrite("", {"alice": ALICE, BOB.name: BOB})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "users"
    file.write_text(TEXT)
    file.chmod(0o600)
    return file


def test_lines_are_read_as_they_were_written() -> None:
    assert parse_users(TEXT) == {"alice": ALICE, "bob@example.org": BOB}


def test_comments_and_order_stay() -> None:
    text = f"# staff\n\n{TEXT}# end\n"
    changed = rewrite(text, {"alice": BOB, "carol": ALICE})
    assert [line.split()[0] for line in changed.splitlines() if line] == ["#", "#", BOB.name, "#", "alice"]


@pytest.mark.parametrize(
    "line",
    [
        "carol",
        "carol argon2=",
        "carol argon2=$argon2i$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA",
        f"carol argon2={ALICE.hash.replace('m=19456', 'm=9999999')}",
        f"carol argon2={ALICE.hash} argon2={ALICE.hash}",
        f"carol argon2={ALICE.hash} password=secret",
        f"carol argon2={ALICE.hash} scram=4096:c2FsdA==:AAAA:AAAA",
        f"carol argon2={ALICE.hash} scram=1:c2FsdA==:AAAA:AAAA",
        f"carol argon2={ALICE.hash} plain=secret!",
        f"carol argon2={ALICE.hash} plain=secrät",
        f"car|ol argon2={ALICE.hash}",
        f"alice argon2={ALICE.hash}",
    ],
)
def test_a_wrong_line_is_named_without_its_secret(line: str) -> None:
    with pytest.raises(BadUsers, match=r"^line 4: ") as raised:
        parse_users(f"{TEXT}{line}\n")
    assert "secret" not in str(raised.value)
    assert ALICE.hash not in str(raised.value)


@given(st.text(max_size=200))
def test_any_text_is_users_or_an_error(text: str) -> None:
    with contextlib.suppress(BadUsers):
        parse_users(text)


def test_no_user_shows_what_opens_the_account() -> None:
    assert "wonderland" not in repr(ALICE)
    assert ALICE.hash not in repr(ALICE)


def test_a_password_is_compared_prepared() -> None:
    user = make_user("carol", "e\u0301")
    assert verify(user.hash, "\u00e9")
    assert not verify(user.hash, "e")


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666])
def test_a_file_open_to_everybody_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(BadUsers, match="chmod 600"):
        read_users(path)


def test_a_change_keeps_the_mode_of_the_file(path: Path) -> None:
    path.chmod(0o640)
    with changing(path, Disk()) as users:
        del users["alice"]
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(read_users(path).users) == ["bob@example.org"]
    assert os.listdir(path.parent) == ["users"]


def test_a_new_file_is_secret(tmp_path: Path) -> None:
    with changing(tmp_path / "new", Disk()) as users:
        users["alice"] = ALICE
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_two_changes_exclude_each_other(path: Path) -> None:
    with (
        changing(path, Disk()),
        pytest.raises(BadUsers, match="try again"),
        changing(path, Disk()) as users,
    ):
        users.clear()
    assert len(read_users(path).users) == 2


def test_a_change_that_fails_leaves_the_file(path: Path) -> None:
    with contextlib.suppress(KeyError), changing(path, Disk()) as users:
        users.clear()
        raise KeyError
    assert len(read_users(path).users) == 2


class FullDisk(Disk):
    """Nothing becomes durable."""

    def datasync(self, fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_old_file_alone(path: Path) -> None:
    with contextlib.suppress(OSError), changing(path, FullDisk()) as users:
        users.clear()
    assert path.read_text() == TEXT
    assert os.listdir(path.parent) == ["users"]


def test_a_directory_takes_a_change_up(path: Path) -> None:
    directory = Directory(path)
    directory.load()
    assert "carol" not in directory
    with changing(path, Disk()) as users:
        users["carol"] = make_user("carol", "new")
    directory.look()
    assert verify(directory.find("carol").hash, "new")


def test_a_broken_line_is_logged_once_and_users_stay(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = Directory(path)
    directory.load()
    path.write_text(f"{TEXT}carol plain=secret\n")
    with caplog.at_level(logging.INFO):
        directory.look()
        directory.look()
    assert "alice" in directory
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "line 4" in caplog.text
    assert "secret" not in caplog.text


def test_nothing_fits_an_unknown_user(path: Path) -> None:
    directory = Directory(path)
    directory.load()
    nobody = directory.find("nobody")
    assert nobody == directory.find("nobody")
    assert not verify(nobody.hash, "")
    assert nobody.hash[:30] == ALICE.hash[:30]


def test_all_processes_give_an_unknown_user_the_same_salt(path: Path) -> None:
    directories = [Directory(path) for _ in range(2)]
    for each in directories:
        each.load()
    with changing(path, Disk()) as users:
        users["zoe"] = make_user("zoe", "pw")
    directories[1].look()
    salts = {each.find("nobody").scram.salt for each in directories}
    assert len(salts) == 1
    assert directories[0].find("somebody").scram.salt not in salts


def test_a_user_without_plain_has_no_cram_secret(path: Path) -> None:
    directory = Directory(path)
    directory.load()
    assert directory.find("alice").plain == "wonderland"
    assert len(directory.find("bob@example.org").plain) == 64
