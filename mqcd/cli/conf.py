"""`conf`: prints the files that come with mqcd: example configuration, alert rules, dashboard, unit."""

from __future__ import annotations

from pathlib import Path

import click

import mqcd
from mqcd.cli.options import takes_place

_EXAMPLE = "mqcd.xml"


def shipped() -> dict[str, Path]:
    """The files by their names: those of an installed package, else of the source tree."""
    package = Path(mqcd.__file__).parent
    directory = next(each for each in (package / "conf", package.parent / "conf") if each.is_dir())
    return {
        str(path.relative_to(directory)): path
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith(".")
    }


@click.command(short_help="Print the example configuration, or another file.")
@click.argument("name", default=_EXAMPLE)
@click.option("--list", "as_list", is_flag=True, help="List the files instead.")
@takes_place()
def conf(name: str, as_list: bool) -> None:
    """Print a file that comes with mqcd; by default the example configuration, with every setting."""
    files = shipped()
    if as_list:
        click.echo("\n".join(files))
        return
    if name not in files:
        raise click.UsageError(f"no file {name!r} comes with mqcd; there are: {', '.join(files)}")
    click.echo(files[name].read_bytes(), nl=False)
