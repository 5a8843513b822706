"""docs/operations.md, README and the command line name the same commands and options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from mqcd.cli.main import cli

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


def test_every_command_and_option_is_told_and_no_other() -> None:
    assert told() == {words: options(command) - EVERYWHERE for words, command in commands(cli)}


def test_the_readme_names_the_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in cli.commands:
        assert f"`mqcd {name}" in readme


def test_options_for_everywhere_are_on_every_command() -> None:
    assert [words for words, command in commands(cli) if not {"--conf", "--var"} <= options(command)] == []


def test_every_command_has_a_sentence_of_help() -> None:
    assert [words for words, command in commands(cli) if not (command.help or "").strip()] == []
