"""`sendmail` and `mailq` among the other commands. They parse their words themselves (`mqcd.sendmail`)."""

from __future__ import annotations

from collections.abc import Callable

import click

from mqcd.cli.options import Place, pass_place, takes_place

_AS_THEY_ARE = {"ignore_unknown_options": True, "help_option_names": ["--help"]}


def _at_place(command: Callable[..., int]) -> Callable[..., int]:
    # In -Fmacro there is a c that is none of ours.
    return takes_place(short=False)(pass_place(command))


def _run(place: Place, words: tuple[str, ...]) -> int:
    from mqcd.sendmail.main import run

    root = click.get_current_context().find_root().command

    def commands(line: list[str]) -> int:
        result = root.main(line, prog_name="mqcd", standalone_mode=False, obj=Place(own_process=True))
        return result if isinstance(result, int) else 0

    var = place.var if place.var is not None else place.conf.absolute().parent.parent / "var"
    return run(["--conf", str(place.conf), "--var", str(var), *words], commands)


@click.command(short_help="Send a message from standard input.", context_settings=_AS_THEY_ARE)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[RECIPIENT]...")
@_at_place
def sendmail(place: Place, words: tuple[str, ...]) -> int:
    """Send a message from standard input, as a program on this machine.

    \b
    -t            recipients are those of To, Cc and Bcc, too
    -i, -oi       a line of one dot does not end the message
    -f SENDER     reverse-path; by default you, who need a right to any other
    -F NAME       your full name, where the message has no From
    -N LIST       reports wanted: never, or success, failure, delay
    -R full|hdrs  what reports return; -V TEXT marks them
    -B TYPE       7BIT or 8BITMIME
    -bs           speak SMTP on standard input and output
    -bp           list the queue; -q tries all of it, -qRTEXT what is for recipients with TEXT
    -v            show the dialogue
    --var DIR     the server's %DIRVAR%  [MQCD_VAR]

    Other options of sendmail are accepted without effect. Exit codes are those of sysexits.h.
    """
    return _run(place, words)


@click.command(short_help="List the queue, as `queue ls` does.", context_settings=_AS_THEY_ARE)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="")
@_at_place
def mailq(place: Place, words: tuple[str, ...]) -> int:
    """List the queue, as `mqcd queue ls` does."""
    return _run(place, ("-bp", *words))
