"""Writes manual pages, one a command, and completions for shells, from the commands themselves.

python conf/packaging/generate.py man DIRECTORY
python conf/packaging/generate.py completion DIRECTORY
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from mqcd import __version__
from mqcd.cli.main import cli

_SHELLS = {"bash": "mqcd", "zsh": "_mqcd", "fish": "mqcd.fish"}
"""Shells, and the file that each looks for."""


def pages(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Name and text of the page of a command, and of those of the commands in it."""
    name = context.command_path.replace(" ", "-")
    inner = command.commands if isinstance(command, click.Group) else {}
    below = [f"{name}-{each}" for each in inner]
    yield name, page(name, command, context, below)
    for word, each in inner.items():
        yield from pages(each, click.Context(each, info_name=word, parent=context))


def page(name: str, command: click.Command, context: click.Context, below: list[str]) -> str:
    """One page (man(7))."""
    summary = command.get_short_help_str(200).rstrip(".")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH {roff(name.upper())} 1 "" "mqcd {__version__}" "mqcd"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(summary[:1].lower() + summary[1:])}",
        ".SH SYNOPSIS",
        f".B {roff(context.command_path)}",
        text(usage),
        ".SH DESCRIPTION",
        *described(command.help or summary),
    ]
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    lines.append(".SH OPTIONS")
    for record in filter(None, (each.get_help_record(context) for each in options)):
        lines += [".TP", f".B {roff(record[0])}", text(record[1] or "")]
    others = below or [context.parent.command_path.replace(" ", "-")] if context.parent or below else []
    if others:
        lines += [".SH SEE ALSO", text(", ".join(f"{each}(1)" for each in others))]
    return "\n".join(line for line in lines if line) + "\n"


def described(help_text: str) -> Iterator[str]:
    """Paragraphs; those that click is not to wrap stay as they are."""
    for paragraph in re.split(r"\n\s*\n", help_text.strip()):
        lines = paragraph.splitlines()
        fixed = lines[0].strip() == "\b"
        yield ".PP"
        if fixed:
            yield ".nf"
        for line in lines[fixed:]:
            yield text(line if fixed else line.strip())
        if fixed:
            yield ".fi"


def text(line: str) -> str:
    """A line that is no request."""
    made = roff(line)
    return f"\\&{made}" if made.startswith((".", "'")) else made


def roff(line: str) -> str:
    """The line with the characters escaped that mean something to roff."""
    return line.replace("\\", "\\e").replace("-", "\\-")


def write_man(directory: Path) -> None:
    """The pages, one a file."""
    for name, content in pages(cli, click.Context(cli, info_name="mqcd")):
        (directory / f"{name}.1").write_text(content, encoding="utf-8")


def write_completion(directory: Path) -> None:
    """A script for each shell."""
    for shell, name in _SHELLS.items():
        kind = get_completion_class(shell)
        if kind is None:
            raise SystemExit(f"click has no completion for {shell}")
        made = kind(cli, {}, "mqcd", "_MQCD_COMPLETE")
        # `source` would look for the shell's own version, of a shell that need not be here.
        (directory / name).write_text(made.source_template % made.source_vars(), encoding="utf-8")


def main(words: list[str]) -> None:
    """Run the command line."""
    makers = {"man": write_man, "completion": write_completion}
    if len(words) != 2 or words[0] not in makers:
        raise SystemExit(__doc__)
    directory = Path(words[1])
    directory.mkdir(parents=True, exist_ok=True)
    makers[words[0]](directory)


if __name__ == "__main__":
    main(sys.argv[1:])
