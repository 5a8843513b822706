"""`import` as scripts and people see it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqcd.cli import main
from mqcd.queue.admin.transfer import admission
from mqcd.queue.recovery.imports import name_events
from tests.unit.daemon.support import write_conf
from tests.unit.queue.admin.trees import image, made, record, unpack

Capture = pytest.CaptureFixture[str]


def words(tmp_path: Path, *more: str) -> list[str]:
    return ["-c", str(write_conf(tmp_path)), *more]


def told(capfd: Capture) -> dict[str, Any]:
    (line,) = capfd.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_sample_is_imported_once(tmp_path: Path, capfd: Capture) -> None:
    var = str(unpack("mixed", tmp_path) / "var")
    assert main(words(tmp_path, "import", "mailismus", var, "--json")) == 0
    assert told(capfd) == {
        "found": 17, "imported": 17, "skipped": 0, "damaged": 0, "dry_run": False, "problems": [],
    }  # fmt: skip
    assert main(words(tmp_path, "import", "mailismus", var, "--json")) == 0
    again = told(capfd)
    assert (again["found"], again["imported"], again["skipped"]) == (17, 0, 17)
    assert main(words(tmp_path, "queue", "stat", "--json")) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {row["area"]: row["recipients"] for row in rows} == {
        "incoming": 0, "deferred": 8, "bounces": 9, "held": 0, "removed": 0,
    }  # fmt: skip
    assert main(words(tmp_path, "fsck")) == 0


def test_damage_is_listed_and_is_no_failure(tmp_path: Path, capfd: Capture) -> None:
    tree = made(tmp_path)
    cluster = tree.cluster("incoming", record(), "half a line\n", "\n", record("F97BB3A2"))
    tree.content()
    assert main(words(tmp_path, "import", "mailismus", str(tree.var))) == 0
    said = capfd.readouterr()
    assert said.out.startswith("3 found, 1 imported, 0 skipped, 2 damaged\n")
    assert f"{cluster}:2: the line has 1 fields" in said.err
    assert f"{cluster}:3: is blank" in said.err
    assert f"{cluster}:4: message F97BB3A2 " in said.err
    assert main(words(tmp_path, "import", "mailismus", str(tree.var), "--json")) == 0
    again = told(capfd)
    assert (again["imported"], again["skipped"], again["damaged"]) == (0, 1, 2)
    assert [(each["kind"], each["line"]) for each in again["problems"]] == [
        ("line", 2), ("blank", 3), ("content", 4),
    ]  # fmt: skip


def test_a_dry_run_changes_nothing(tmp_path: Path, capfd: Capture) -> None:
    var = str(unpack("mixed", tmp_path) / "var")
    assert main(words(tmp_path, "import", "mailismus", var, "--dry-run")) == 0
    assert capfd.readouterr().out == "17 found, 17 to be imported, 0 skipped, 0 damaged\n"
    assert not (tmp_path / "var").exists()


def test_a_place_without_a_queue_is_exit_code_1(tmp_path: Path, capfd: Capture) -> None:
    assert main(words(tmp_path, "import", "mailismus", str(tmp_path / "nowhere"))) == 1
    assert "holds no queue of Mailismus" in capfd.readouterr().err


def test_what_was_exported_is_imported(tmp_path: Path, capfd: Capture) -> None:
    var = str(unpack("mixed", tmp_path) / "var")
    assert main(words(tmp_path, "import", "mailismus", var)) == 0
    capfd.readouterr()
    mail = str(tmp_path / "mail")
    assert main(words(tmp_path, "queue", "export", "--to", mail, "--area", "deferred", "--json")) == 0
    assert told(capfd) == {"messages": 6, "recipients": 8, "gone": 0, "failed": 0, "damaged": 0}
    assert main(words(tmp_path, "queue", "export", "--to", mail)) == 1
    assert "is not empty" in capfd.readouterr().err
    other = ["--var", str(tmp_path / "other")]
    assert main(words(tmp_path, *other, "import", "eml", mail, "--json")) == 0
    found = told(capfd)
    assert (found["found"], found["imported"], found["damaged"]) == (8, 8, 0)
    assert main(words(tmp_path, *other, "queue", "ls", "--json")) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {(row["area"], row["attempts"], row["due"]) for row in rows} == {
        ("deferred", 1, "2026-11-20T15:21:00.000Z"),
    }  # fmt: skip


def test_a_missing_content_makes_an_export_fail(tmp_path: Path, capfd: Capture) -> None:
    var = str(unpack("mixed", tmp_path) / "var")
    assert main(words(tmp_path, "import", "mailismus", var)) == 0
    (first, *_) = sorted((tmp_path / "var" / "spool").rglob("*.msg"))
    first.unlink()
    assert main(words(tmp_path, "queue", "export", "--to", str(tmp_path / "mail"))) == 1
    assert first.stem in capfd.readouterr().err


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["real", "dry"])
def test_a_queue_of_mailismus_is_not_imported_into_itself(
    tmp_path: Path, capfd: Capture, more: tuple[str, ...]
) -> None:
    sample = unpack("mixed", tmp_path)
    before = image(sample)
    there = words(tmp_path, "--var", str(sample / "var"))
    for directory in (sample / "var", sample):
        assert main([*there, "import", "mailismus", str(directory), *more]) == 1
        said = capfd.readouterr()
        assert f"{sample}/var/queue is a queue of Mailismus" in said.err
        assert said.out == ""
    assert image(sample) == before
    assert main([*there, "fsck"]) == 1
    assert "a queue of Mailismus" in capfd.readouterr().out


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["real", "dry"])
def test_a_queue_of_ours_is_not_imported_into_itself(
    tmp_path: Path, capfd: Capture, more: tuple[str, ...]
) -> None:
    assert main(words(tmp_path, "import", "mailismus", str(unpack("mixed", tmp_path)))) == 0
    capfd.readouterr()
    assert main(words(tmp_path, "import", "mailismus", str(tmp_path / "var"), *more)) == 1
    assert f"{tmp_path}/var/queue is the queue's own" in capfd.readouterr().err
    elsewhere = str(made(tmp_path).var)
    shared = ("--spool", str(tmp_path / "var" / "spool"))
    assert main(words(tmp_path, "import", "mailismus", elsewhere, *shared, *more)) == 1
    assert f"{tmp_path}/var/spool is the queue's own" in capfd.readouterr().err


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["real", "dry"])
def test_a_queue_without_manifest_takes_no_import(
    tmp_path: Path, capfd: Capture, more: tuple[str, ...]
) -> None:
    sample = str(unpack("mixed", tmp_path))
    assert main(words(tmp_path, "import", "mailismus", sample)) == 0
    (tmp_path / "var" / "queue" / "MANIFEST").unlink()
    capfd.readouterr()
    assert main(words(tmp_path, "import", "mailismus", sample, *more)) == 1
    said = capfd.readouterr().err
    assert "MANIFEST is missing" in said
    assert "mqcd fsck" in said


def test_a_queue_of_mqcd_is_not_read_as_one_of_mailismus(tmp_path: Path, capfd: Capture) -> None:
    assert main(words(tmp_path, "import", "mailismus", str(unpack("mixed", tmp_path)))) == 0
    capfd.readouterr()
    there = words(tmp_path, "--var", str(tmp_path / "other"))
    assert main([*there, "import", "mailismus", str(tmp_path / "var")]) == 1
    said = capfd.readouterr()
    assert "mqcd queue export" in said.err
    assert "mqcd import eml" in said.err
    assert said.out == ""


@pytest.mark.parametrize("when", ["before", "behind"])
def test_an_interrupt_is_reported_only_where_nothing_was_taken_in(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch, ctrl_c: Callable[[], None], when: str
) -> None:
    def interrupt(*args: Any) -> None:
        ctrl_c()
        name_events(*args)

    monkeypatch.setattr(admission, {"before": "events_temp", "behind": "name_events"}[when], interrupt)
    var = str(unpack("mixed", tmp_path) / "var")
    found = main(words(tmp_path, "import", "mailismus", var))
    said = capfd.readouterr()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.undo()
    assert main(words(tmp_path, "import", "mailismus", var, "--dry-run", "--json")) == 0
    left = told(capfd)["imported"]
    if when == "before":
        assert (found, said.out, said.err.strip(), left) == (1, "", "interrupted", 17)
    else:
        assert (found, said.out, said.err, left) == (
            0,
            "17 found, 17 imported, 0 skipped, 0 damaged\n",
            "",
            0,
        )
