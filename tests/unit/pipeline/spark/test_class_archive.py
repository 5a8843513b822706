"""The archive of Java's classes: when it is used, when it is made, and what is never used."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcd.disk.durable import Disk
from mqcd.pipeline.spark.class_archive import Archive


class Place:
    """A class path, and the archive of it; each call starts another process, as it were."""

    def __init__(self, root: Path) -> None:
        self.kept = root / "pipeline" / "_java"
        self.files = [root / name for name in ("libjvm.so", "a.jar", "b.jar")]
        for path in self.files:
            path.write_bytes(b"1")

    def archive(self, room: int = 1) -> Archive:
        return Archive(self.kept, self.files, room=room)

    def archives(self) -> list[Path]:
        return sorted(self.kept.glob("*.jsa"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def java(options: str, octets: bytes = b"classes", code: int = 0) -> Callable[[], int]:
    """A Java that ends with a code, having kept what it was told to keep."""

    def end() -> int:
        if octets:
            Path(re.findall('-XX:ArchiveClassesAtExit="(.+?)"', options)[0]).write_bytes(octets)
        return code

    return end


def made(place: Place) -> Path:
    archive = place.archive()
    archive.close(java(archive.options(make=True)))
    return place.archives()[0]


def never() -> int:
    raise AssertionError("Java need not end")


def test_what_one_java_keeps_the_next_one_starts_with(place: Place) -> None:
    first = place.archive()
    options = first.options(make=True)
    assert place.archives() == []
    first.close(java(options))
    (path,) = place.archives()
    assert path.read_bytes() == b"classes"
    assert sorted(each.name for each in place.kept.iterdir()) == [path.name, "lock"]
    assert stat.S_IMODE(place.kept.stat().st_mode) == 0o700, "Java runs what is in there"

    second = place.archive()
    assert f'-XX:SharedArchiveFile="{path}" -XX:+VerifySharedSpaces' in second.options(make=True)
    assert not second.making
    second.close(never)


def test_nothing_is_made_unasked(place: Place) -> None:
    archive = place.archive()
    assert archive.options() == ""
    archive.close(never)
    assert not place.kept.exists()


def test_a_java_that_failed_keeps_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    for octets, code in ((b"half", 1), (b"", 0)):
        archive = place.archive()
        archive.close(java(archive.options(make=True), octets, code))
        assert [path.name for path in place.kept.iterdir()] == ["lock"]
        assert f"Java ended with {code} and made nothing to use" in caplog.text
    assert made(place).exists(), "and the next one may"


def test_one_that_was_cut_off_is_not_used_and_made_anew(place: Place) -> None:
    """Java dies of it (SIGBUS)."""
    path = made(place)
    path.write_bytes(b"class")
    assert place.archive().options() == ""
    assert made(place) == path
    assert path.read_bytes() == b"classes"


@pytest.mark.parametrize("which", [0, 2], ids=["java", "a jar"])
def test_another_java_or_spark_takes_its_place(place: Place, which: int) -> None:
    before = made(place)
    place.files[which].write_bytes(b"22")
    assert place.archive().options() == ""
    archive = place.archive()
    options = archive.options(make=True)
    assert before.exists(), "until there is another"
    archive.close(java(options))
    assert len(place.archives()) == 1
    assert not before.exists()


def test_another_order_of_the_class_path_is_another_one(place: Place) -> None:
    made(place)
    place.files.reverse()
    assert place.archive().options() == ""


def test_another_size_of_memory_is_another_one(place: Place) -> None:
    """Java keeps classes in another form where it has more than 32 GB."""
    made(place)
    assert Archive(place.kept, place.files, "40g").options() == ""


def test_one_that_was_made_meanwhile_is_used(place: Place) -> None:
    """Between a look and the lock another process may be done."""

    class Late(Disk):
        def lock(self, fd: int, *, exclusive: bool) -> bool:
            made(place)
            return super().lock(fd, exclusive=exclusive)

    archive = Archive(place.kept, place.files, room=1, disk=Late())
    assert str(place.kept) in archive.options(make=True)
    (path,) = place.archives()
    assert "SharedArchiveFile" in archive.options()
    archive.close(never)
    assert path.exists()


def test_where_others_may_write_nothing_is_used(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    made(place)
    place.kept.chmod(0o770)
    assert place.archive().options(make=True) == ""
    assert "others may write there" in caplog.text


def test_one_given_up_leaves_nothing(place: Place) -> None:
    archive = place.archive()
    java(archive.options(make=True))()
    archive.abandon()
    assert [path.name for path in place.kept.iterdir()] == ["lock"]
    assert made(place).exists(), "the lock was let go of"


def test_what_was_left_half_made_goes(place: Place) -> None:
    place.kept.mkdir(parents=True)
    left = place.kept / "0123456789abcdef-7.new"
    left.write_bytes(b"half")
    made(place)
    assert not left.exists()


def test_one_at_a_time_makes_one(place: Place) -> None:
    place.kept.mkdir(parents=True)
    with (place.kept / "lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        archive = place.archive()
        assert archive.options(make=True) == ""
        archive.close(never)
    assert made(place).exists()


def test_where_the_disk_is_nearly_full_nothing_is_made(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    archive = place.archive(room=1 << 60)
    assert archive.options(make=True) == ""
    archive.close(never)
    assert "MB are free on disk" in caplog.text
    assert made(place).exists(), "the lock was let go of"


def test_a_directory_that_java_would_take_for_two(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    assert Place(tmp_path / "a:b").archive().options(make=True) == ""


def test_words_and_quotes_in_a_path(tmp_path: Path) -> None:
    root = tmp_path / 'my "mail" \\ tables'
    root.mkdir()
    options = Place(root).archive().options(make=True)
    assert 'my \\"mail\\" \\\\ tables/pipeline/_java/' in options


class Broken(Disk):
    """Nothing becomes durable."""

    def sync_filesystem(self, path: Path, watch: int | None = None) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def test_an_error_of_the_disk_is_reported_and_hurts_nobody(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    archive = Archive(place.kept, place.files, room=1, disk=Broken())
    archive.close(java(archive.options(make=True)))
    assert [path.name for path in place.kept.iterdir()] == ["lock"]
    assert "Input/output error" in caplog.text

    place.kept.joinpath("lock").unlink()
    place.kept.rmdir()
    place.kept.write_text("a file")
    assert place.archive().options(make=True) == ""
    assert "File exists" in caplog.text
