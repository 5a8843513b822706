"""The command line's groups, and errors as exit codes."""

from __future__ import annotations

import io
import sys

import click

from mqcd import __version__
from mqcd.cli.access.token import token
from mqcd.cli.access.user import user
from mqcd.cli.conf import conf
from mqcd.cli.explain import explain
from mqcd.cli.importing import bring_in
from mqcd.cli.options import Place, takes_place
from mqcd.cli.pausing import drain, pause, resume
from mqcd.cli.pipeline.commands import pipeline
from mqcd.cli.queue import batches as _batches  # noqa: F401 - its commands belong to `queue`
from mqcd.cli.queue import show as _show  # noqa: F401 - the same
from mqcd.cli.queue.commands import queue
from mqcd.cli.rule import rule
from mqcd.cli.sendmail import mailq, sendmail
from mqcd.cli.serving.feed import feed
from mqcd.cli.serving.page import page
from mqcd.cli.serving.server import check, demo, run
from mqcd.cli.serving.top import top
from mqcd.cli.sink import sink
from mqcd.cli.trace import trace
from mqcd.cli.upkeep import fsck
from mqcd.core.errors import MqcdError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="mqcd", message="%(prog)s %(version)s")
@takes_place(env=True)
def cli() -> None:
    """A mail queue server: keeps mail safe on disk and delivers it."""


for command in (
    run,
    check,
    conf,
    top,
    queue,
    rule,
    explain,
    user,
    token,
    fsck,
    bring_in,
    sink,
    demo,
    pipeline,
):
    cli.add_command(command)
for command in (trace, pause, resume, drain, page, feed, sendmail, mailq):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line, which is the process's own when none is given; gives the exit code.

    Errors that are meant for the reader go to stderr.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Addresses may hold what the terminal's character set does not.
        sys.stdout.reconfigure(errors="replace")
    try:
        own = Place(own_process=arguments is None)
        result = cli.main(arguments, prog_name="mqcd", standalone_mode=False, obj=own)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except MqcdError as error:
        click.echo(error, err=True)
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"{place}{error.strerror or error}", err=True)
        return 1
    return result if isinstance(result, int) else 0
