"""`token`: which programs and people may use the page and the HTTP API."""

from __future__ import annotations

from pathlib import Path

import click

from mqcd.cli.options import Place, as_json, at_place, show
from mqcd.cli.upkeep import owner_of
from mqcd.net.clock import SystemClock


@click.group(short_help="Add, remove and list the tokens of the page and the HTTP API.")
def token() -> None:
    """Tokens of the page and the HTTP API, in the file that <ops><page tokens=""/> names."""


@token.command(short_help="Make a token.")
@click.argument("name")
@click.option(
    "--role", "roles", type=click.Choice(["read", "operate", "inject"]), multiple=True, required=True,
    help="What it may do; may be repeated. operate includes read.",
)  # fmt: skip
@at_place
def add(place: Place, name: str, roles: tuple[str, ...]) -> int:
    """Make a token and print it: the only time that it is shown. Only its hash is kept."""
    import secrets

    from mqcd.core.events import format_time
    from mqcd.disk.durable import Disk
    from mqcd.page.access.file import changing
    from mqcd.page.access.tokens import (
        SECRET_OCTETS,
        BadTokens,
        Role,
        Token,
        check_name,
        digest_of,
        secret_of,
    )

    path, owner = _target(place)
    made = Token(
        name=check_name(name),
        roles=frozenset(map(Role, roles)),
        digest=digest_of(secret := secret_of(secrets.token_bytes(SECRET_OCTETS))),
        made=format_time(SystemClock().now()),
    )
    with changing(path, Disk(), owner) as tokens:
        if name in tokens:
            raise BadTokens(f"there is a token {name} already: remove it, or choose another name")
        tokens[name] = made
    click.echo(f"the token of {name}, which is not shown again:", err=True)
    click.echo(secret)
    return 0


@token.command(short_help="Remove a token.")
@click.argument("name")
@at_place
def remove(place: Place, name: str) -> int:
    """Remove a token: what shows it is refused within a second, and sessions begun by it end."""
    from mqcd.disk.durable import Disk
    from mqcd.page.access.file import changing
    from mqcd.page.access.tokens import BadTokens

    path, owner = _target(place)
    with changing(path, Disk(), owner) as tokens:
        if tokens.pop(name, None) is None:
            raise BadTokens(f"there is no token {name}")
    click.echo(f"{name} removed")
    return 0


@token.command("list", short_help="List the tokens.")
@as_json
@at_place
def list_tokens(place: Place, as_json: bool) -> int:
    """List the tokens, their roles, when each was made, and when it was last used (within a minute)."""
    from mqcd.page.access.file import read_tokens, read_uses

    path, _ = _target(place)
    tokens = read_tokens(path)[0] if path.exists() else {}
    uses = read_uses(path)
    for each in tokens.values():
        roles, used = sorted(role.value for role in each.roles), uses.get(each.digest)
        fields = {"name": each.name, "roles": roles, "made": each.made, "used": used}
        text = f"{each.name:<24} {','.join(roles):<20} made {each.made}  used {used or 'never'}"
        show(fields, text, as_json)
    return 0


def _target(place: Place) -> tuple[Path, tuple[int, int] | None]:
    """The file of tokens, and the owner that a new one gets."""
    settings = place.load().settings
    return settings.ops.page.tokens, owner_of(settings)
