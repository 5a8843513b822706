"""`user`: who may log in. The server takes a change up within seconds.

A password is never an argument, which every user of the machine could see: it is asked for at a terminal, and
elsewhere read from the first line of standard input.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from mqcd.cli.options import Place, as_json, at_place, show
from mqcd.cli.upkeep import owner_of
from mqcd.core.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqcd.submit.users.lines import User

Command = TypeVar("Command", bound="Callable[..., object]")
_MAX_LINE = 4096


@click.group(short_help="Add, change and list the users that may log in.")
def user() -> None:
    """Users that may log in to send mail, in the file that a listener's <users file=""/> names."""


def _with_file(command: Command) -> Command:
    option = click.option(
        "--file", metavar="FILE", type=click.Path(path_type=Path),
        help="File of users, where listeners name several or none.",
    )  # fmt: skip
    return option(command)


def _with_plain(command: Command) -> Command:
    option = click.option(
        "--plain", is_flag=True, help="Also keep the password itself, which CRAM-MD5 needs."
    )
    return option(command)


@user.command(short_help="Add a user.")
@click.argument("name")
@_with_plain
@_with_file
@at_place
def add(place: Place, name: str, plain: bool, file: Path | None) -> int:
    """Add a user; the password is asked for, or the first line of standard input."""
    from mqcd.disk.durable import Disk
    from mqcd.submit.users.file import changing, read_users
    from mqcd.submit.users.lines import check_name
    from mqcd.submit.users.passwords import make_user

    path, owner = _target(place, file)
    name = check_name(name)
    if path.exists():
        _refuse_known(read_users(path).users, name)
    made = make_user(name, _new_password(name), plain=plain)
    with changing(path, Disk(), owner) as users:
        _refuse_known(users, name)
        users[name] = made
    click.echo(f"{name} added to {path}")
    return 0


@user.command(short_help="Change a user's password.")
@click.argument("name")
@_with_plain
@_with_file
@at_place
def passwd(place: Place, name: str, plain: bool, file: Path | None) -> int:
    """Give a user another password; without --plain the password itself is no longer kept."""
    from mqcd.disk.durable import Disk
    from mqcd.submit.users.file import changing
    from mqcd.submit.users.passwords import make_user

    path, owner = _target(place, file)
    name = _known(path, name).name
    made = make_user(name, _new_password(name), plain=plain)
    with changing(path, Disk(), owner) as users:
        _of(users, name)
        users[name] = made
    click.echo(f"{name} has a new password")
    return 0


@user.command(short_help="Remove a user.")
@click.argument("name")
@_with_file
@at_place
def remove(place: Place, name: str, file: Path | None) -> int:
    """Remove a user. Sessions that have logged in go on until they end."""
    from mqcd.disk.durable import Disk
    from mqcd.submit.users.file import changing

    path, owner = _target(place, file)
    with changing(path, Disk(), owner) as users:
        del users[_of(users, name).name]
    click.echo(f"{name} removed")
    return 0


@user.command("list", short_help="List the users.")
@as_json
@_with_file
@at_place
def list_users(place: Place, as_json: bool, file: Path | None) -> int:
    """List the users and the mechanisms that each can log in by."""
    from mqcd.submit.users.file import read_users

    for each in read_users(_target(place, file)[0]).users.values():
        scram, plain = each.scram is not None, each.plain is not None
        ways = ["PLAIN", "LOGIN", *["SCRAM-SHA-256"] * scram, *["CRAM-MD5"] * plain]
        fields = {"name": each.name, "scram": scram, "plain": plain}
        show(fields, f"{each.name:<32} {' '.join(ways)}", as_json)
    return 0


@user.command(short_help="Check a user's password.")
@click.argument("name")
@_with_file
@at_place
def check(place: Place, name: str, file: Path | None) -> int:
    """Check a password, asked for or the first line of standard input; exit code 1 if it is wrong."""
    from mqcd.submit.auth.saslprep import saslprep
    from mqcd.submit.users.passwords import verify

    known = _known(_target(place, file)[0], name)
    try:
        good = verify(known.hash, saslprep(_password(f"Password of {known.name}")))
    except DecodeError:
        good = False
    click.echo("the password is right" if good else "the password is wrong")
    return 0 if good else 1


def _target(place: Place, file: Path | None) -> tuple[Path, tuple[int, int] | None]:
    """The file of users, and the owner that a new one gets. Raises UsageError where it is not clear."""
    settings = place.load().settings
    named = {each.server.users for each in settings.submit.listeners if each.server.users is not None}
    if file is None and len(named) != 1:
        text = "several files" if named else "no file"
        raise click.UsageError(f'the listeners name {text} of users (<users file=""/>): give --file')
    return file or named.pop(), owner_of(settings)


def _known(path: Path, name: str) -> User:
    from mqcd.submit.users.file import read_users

    return _of(read_users(path).users, name)


def _of(users: dict[str, User], name: str) -> User:
    from mqcd.submit.users.lines import BadUsers, check_name

    found = users.get(check_name(name))
    if found is None:
        raise BadUsers(f"there is no user {name}")
    return found


def _refuse_known(users: dict[str, User], name: str) -> None:
    from mqcd.submit.users.lines import BadUsers

    if name in users:
        raise BadUsers(f"{name} is a user already: change the password by `mqcd user passwd`")


def _new_password(name: str) -> str:
    return _password(f"New password of {name}", twice=True)


def _password(prompt: str, *, twice: bool = False) -> str:
    """Asked for without an echo; the first line of standard input where that is no terminal."""
    if sys.stdin.isatty():
        return str(click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True))
    line = sys.stdin.readline(_MAX_LINE + 1)
    if len(line) > _MAX_LINE:
        raise click.UsageError(f"the first line of standard input has more than {_MAX_LINE} characters")
    return line.rstrip("\r\n")
