"""Lines into files: rights, directories, size, a disk that refuses, and files that others move."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mqcd.config.settings import Rotation
from mqcd.ops.audit.audit import AuditFile
from mqcd.ops.audit.rotation import Names


class Disk:
    """Writes what it is told, until it is full."""

    def __init__(self, room: int = 10**9, at_once: int = 10**9) -> None:
        self.room = room
        self.at_once = at_once

    def write(self, fd: int, octets: memoryview) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = octets[: min(self.room, self.at_once)]
        self.room -= len(part)
        return os.write(fd, part)


def audit_file(template: Path, maxfile: int = 0, disk: Disk | None = None) -> AuditFile:
    return AuditFile(Names(template, Rotation.NEVER), maxfile, write=(disk or Disk()).write)


def append(file: AuditFile, path: Path, *lines: bytes) -> int:
    return file.append(path, lines)


def test_lines_are_added_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    path.chmod(0o640)
    assert append(audit_file(path), path, b"two\n", b"three\n") == 2
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_files_and_directories_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "Y2026" / "M11" / "a.log"
    append(audit_file(path), path, b"one\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_short_writes_are_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(audit_file(path, disk=Disk(at_once=3)), path, b"one line\n", b"another\n")
    assert path.read_bytes() == b"one line\nanother\n"


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    disk = Disk()
    file = audit_file(path, disk=disk)
    append(file, path, b"one\n")
    disk.room, disk.at_once = 6, 4
    with pytest.raises(OSError, match="No space"):
        append(file, path, b"two\n", b"three\n")
    assert path.read_bytes() == b"one\n"
    disk.room = 100
    assert append(file, path, b"two\n", b"three\n") == 2
    assert path.read_bytes() == b"one\ntwo\nthree\n"


def test_a_torn_end_is_closed_first(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntor")
    append(audit_file(path), path, b"two\n")
    assert path.read_bytes() == b"one\ntor\ntwo\n"


def test_moved_and_removed_files_are_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit" / "a.log"
    file = audit_file(path)
    append(file, path, b"one\n")
    path.rename(tmp_path / "old.log")
    append(file, path, b"two\n")
    assert (tmp_path / "old.log").read_bytes() == b"one\n"
    assert path.read_bytes() == b"two\n"
    path.unlink()
    path.parent.rmdir()
    append(file, path, b"three\n")
    assert path.read_bytes() == b"three\n"


def test_a_file_that_is_full_is_followed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    file = audit_file(path, maxfile=8)
    assert append(file, path, b"one\n", b"two\n", b"three\n") == 2
    assert append(file, path, b"three\n", b"x\n", b"y\n") == 2
    assert append(file, path, b"y\n") == 1
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {
        "a.log": b"one\ntwo\n",
        "a.1.log": b"three\nx\n",
        "a.2.log": b"y\n",
    }


def test_a_restart_goes_on_in_the_last_file_that_has_room(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"12345678")
    (tmp_path / "a.7.log").write_bytes(b"one\n")
    append(audit_file(path, maxfile=8), path, b"two\n")
    append(audit_file(path, maxfile=8), path, b"six\n")
    assert (tmp_path / "a.7.log").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "a.8.log").read_bytes() == b"six\n"
    assert path.read_bytes() == b"12345678"


def test_a_line_larger_than_a_file_may_be_has_one_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    file = audit_file(path, maxfile=4)
    for _ in range(2):
        assert append(file, path, b"a long line\n", b"x\n") == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.1.log", "a.log"]


def test_what_is_no_file_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / "file" / "a.log"
    with pytest.raises(NotADirectoryError):
        append(audit_file(path), path, b"one\n")
    with pytest.raises(IsADirectoryError):
        append(audit_file(tmp_path), tmp_path, b"one\n")
