"""docs/operations.md, README and the command line name the same commands and options."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click

from mqcd.cli.main import cli
from mqcd.cli.upkeep import _as_fields
from mqcd.core.model import Envelope, Recipient
from mqcd.core.selecting.where_fields import FIELDS, LIVE
from mqcd.queue.admin.findings import Findings, Kind
from mqcd.queue.admin.transfer import index

ROOT = Path(__file__).parents[3]
EVERYWHERE = {"--conf", "--var", "--version"}


def commands(command: click.Command, words: str = "mqcd") -> Iterator[tuple[str, click.Command]]:
    """Each command with its words."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{words} {name}")
    else:
        yield words, command


def options(command: click.Command) -> set[str]:
    return {
        option
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if option.startswith("--")
    }


def told() -> dict[str, set[str]]:
    """The table of commands in docs/operations.md."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(mqcd [a-z ]+?)(?: [A-Z]+)?` \|[^|]*\|([^|]*)\|$", page, re.MULTILINE)
    return {words: set(re.findall(r"--[a-z-]+", flags)) for words, flags in rows}


def test_every_command_and_option_is_reported_and_no_other() -> None:
    assert told() == {words: options(command) - EVERYWHERE for words, command in commands(cli)}


def test_the_readme_names_the_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in cli.commands:
        assert f"`mqcd {name}" in readme


def test_options_for_everywhere_are_on_every_command() -> None:
    assert [words for words, command in commands(cli) if not {"--conf", "--var"} <= options(command)] == []


def test_every_command_has_a_sentence_of_help() -> None:
    assert [words for words, command in commands(cli) if not (command.help or "").strip()] == []


def section(head: str, name: str = "operations.md") -> str:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    return page.split(f"\n## {head}\n", 1)[1].split("\n## ", 1)[0]


def test_what_fsck_tells_is_reported() -> None:
    names = set(re.findall(r"^\| `([a-z]+)`", section("Check and repair", "runbook.md"), re.MULTILINE))
    notes = {Kind.ORPHAN, Kind.STRAY, Kind.QUARANTINE, Kind.BLANK}
    assert names - {"kind"} == {*_as_fields(Findings()), *(kind.value for kind in set(Kind) - notes)}


def test_fields_of_conditions_are_reported_with_their_operators() -> None:
    rows = re.findall(
        r"^\| ((?:`[a-z-]+` ?)+)\|([^|]*)\|[^|]*\|[^|]*\|$", section("Conditions"), re.MULTILINE
    )
    shown = {name: re.findall("`(.+?)`", ops) for names, ops in rows for name in re.findall("`(.+?)`", names)}
    assert shown == {name: list((field or LIVE[name]).kind.ops) for name, field in FIELDS.items()}


def test_what_an_index_holds_is_reported() -> None:
    envelope = Envelope(spid=2, sender="", received=0)
    line = json.loads(index.encode("x.eml", [Recipient(envelope=envelope, size=0, qid=1, address="a@b")]))
    names = re.findall(r"`([a-z0-9]+)`", section("Export").split("Names and units")[0])
    assert {*line, *line["recipients"][0]} <= set(names)
