"""Where in the configuration file an address to listen on, or a file, is written, for errors that name it.

Settings do not carry their lines; this reads the file again, only when something could not be bound or read.
Without a file, or when it has changed meanwhile, the element's path alone is the place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mqcd.config.document import BadDocument, parse_document
from mqcd.config.problems import BadConfiguration, Remark
from mqcd.core.errors import ConfigError

OPS = "ops"
CONTROL = "ops/control"
PAGE = "ops/page"
HASHKEY = "ops/events/hashkey"
LISTENERS = "mta/submit/listeners"
LOCAL = "mta/submit/local"


def place_of(conf: Path | None, path: str, index: int | None = None) -> str:
    """`file:line: path` of an element; `index` counts the children of `path` from 0 when it is a list."""
    shown = path if index is None else f"{path}/listener[{index + 1}]"
    if conf is None:
        return shown
    line = line_of(conf, shown)
    return f"{conf}:{line}: {shown}" if line else f"{conf}: {shown}"


def line_of(conf: Path, path: str) -> int:
    """The line of an element, or of the one that has the attribute; 0 when it is not there, and its defaults
    are at work. An element of a list has its number, `relay[2]`; without it the list's line counts."""
    try:
        node = parse_document(conf.read_bytes())
    except (OSError, BadDocument):
        return 0
    for step in path.partition("@")[0].split("/"):
        name, _, number = step.rstrip("]").partition("[")
        found = [child for child in node.children if child.name == name]
        index = int(number or 1) - 1
        if index >= len(found):
            return node.line if number else 0
        node = found[index]
    return node.line


Fault = tuple[str, str]
"""The path of an element or an attribute, and what is wrong with what it names."""


def bad_configuration(conf: Path | None, faults: Iterable[Fault]) -> BadConfiguration:
    """The error that names them all, with their lines."""
    remarks = (
        Remark(file=str(conf or ""), line=line_of(conf, path) if conf else 0, path=path, text=text)
        for path, text in faults
    )
    return BadConfiguration(tuple(remarks))


@contextmanager
def at_port(
    conf: Path | None, path: str, interface: str, port: int, index: int | None = None
) -> Iterator[None]:
    """A port that cannot be had in the block is an error of the configuration, which names its place."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(
            f"{place_of(conf, path, index)}: cannot listen on {interface} port {port}: {reason}; "
            "set another port or interface, or stop what holds it"
        ) from error
