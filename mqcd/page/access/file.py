"""The file of tokens on disk (see `disk.private`), and a file beside it with the last use of each.

The last uses are written now and then and not together with anything: after a crash some are older than they
were. Nothing depends on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mqcd.disk.durable import Disk
from mqcd.disk.private import BadPrivateFile, Version, read_private, rewriting
from mqcd.page.access.tokens import BadTokens, Token, parse_tokens, show_tokens

_HOLDS = "tokens"


def read_tokens(path: Path) -> tuple[dict[str, Token], Version]:
    """By name, and the state of the file that they are of. Raises BadTokens, which names file and line."""
    try:
        text, version = read_private(path, _HOLDS)
    except BadPrivateFile as error:
        raise BadTokens(str(error)) from error
    return _parsed(path, text), version


@contextmanager
def changing(path: Path, disk: Disk, owner: tuple[int, int] | None = None) -> Iterator[dict[str, Token]]:
    """The tokens, to be changed in place: written when the block ends without an error.

    A file that is missing is made, for `owner` (uid, gid) if that is given. Raises BadTokens, OSError.
    """
    try:
        with rewriting(path, _HOLDS, disk, owner) as draft:
            old = _parsed(path, draft.text or "")
            tokens = dict(old)
            yield tokens
            if tokens != old:
                draft.new = show_tokens(tokens.values())
    except BadPrivateFile as error:
        raise BadTokens(str(error)) from error


def _parsed(path: Path, text: str) -> dict[str, Token]:
    try:
        return parse_tokens(text)
    except BadTokens as error:
        raise BadTokens(f"{path}: {error}") from error


def read_uses(path: Path) -> dict[str, str]:
    """Last uses by a token's digest, RFC 3339; none where the file beside `path` cannot be read."""
    try:
        found = json.loads(_uses(path).read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def write_uses(path: Path, uses: Mapping[str, str], disk: Disk) -> None:
    """Raises OSError."""
    disk.replace_file(_uses(path), [json.dumps(uses, sort_keys=True).encode()])


def _uses(path: Path) -> Path:
    return path.with_name(f"{path.name}.used")
