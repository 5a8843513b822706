"""Options that every command takes, before or after its arguments, and what they name.

`-c FILE`, else MQCD_CONF, else conf/mqcd.xml beside the current directory; `--var DIR`, else MQCD_VAR,
else `var` beside the directory that holds the file. Of two, the later one wins.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from mqcd.config.kinds.fields import Kind
    from mqcd.config.load import Loaded

    # Before click 8.2 it was not generic.
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType

_NICE = 10
DEFAULT_CONF = Path("conf/mqcd.xml")

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclasses.dataclass(slots=True)
class Place:
    """Which configuration, and which directory for %DIRVAR%."""

    conf: Path = DEFAULT_CONF
    var: Path | None = None
    own_process: bool = False
    """Whether this command is all that the process runs."""

    def load(self) -> Loaded:
        """Read the configuration, now. Raises BadConfiguration."""
        import socket

        from mqcd.config.load import load

        return load(self.conf, var=self.var, hostname=socket.gethostname())

    def give_way(self) -> None:
        """Lower this process's priority: reading a large queue uses a processor for seconds."""
        if self.own_process:
            os.nice(_NICE)


pass_place = click.make_pass_decorator(Place, ensure=True)


def _keep(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        setattr(context.ensure_object(Place), str(parameter.name), value)


def takes_place(*, env: bool = False, short: bool = True) -> Callable[[Command], Command]:
    """-c and --var on a command; with `env` also from the environment, which stands behind all words. Without
    `short` there is only --conf."""
    # The loader reports a file that cannot be read, with its own exit code.
    path = click.Path(path_type=Path, readable=False)
    conf = click.option(
        *(["-c"] if short else []), "--conf", metavar="FILE", type=path, expose_value=False, callback=_keep,
        envvar="MQCD_CONF" if env else None,
        help="Configuration file.  [MQCD_CONF; conf/mqcd.xml]",
    )  # fmt: skip
    var = click.option(
        "--var", metavar="DIR", type=path, expose_value=False, callback=_keep,
        envvar="MQCD_VAR" if env else None,
        help="Value of %DIRVAR%.  [MQCD_VAR; var beside the configuration's directory]",
    )  # fmt: skip

    def decorate(command: Command) -> Command:
        return conf(var(command))

    return decorate


def at_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """-c and --var on a command, whose first argument is the `Place` that they name."""
    return takes_place()(pass_place(command))


class ConfigValue(_ParamType):
    """A value written as in the configuration."""

    def __init__(self, name: str, make: Callable[[ModuleType], Kind[Any]]) -> None:
        """`make` gives the kind of the value, from `mqcd.config.kinds.fields`, which only its users load."""
        self.name = name
        self._make = make

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value, in the kind's unit: ms or octets. One that was converted already stays."""
        if not isinstance(value, str):
            return value
        from mqcd.config.kinds import fields

        try:
            return self._make(fields).parse(value.strip())
        except fields.BadValue as error:
            self.fail(str(error), param, ctx)


DURATION = ConfigValue("duration", lambda fields: fields.Duration())
SIZE = ConfigValue("size", lambda fields: fields.Size())
DELAYS = ConfigValue("delays", lambda fields: fields.Listed(fields.Duration(least=1000), least=1))

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object a line, and nothing else."
)

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def json_line(fields: Mapping[str, object]) -> str:
    """One object as every command writes it: no blanks, ASCII for any terminal encoding."""
    return _encode(fields) + "\n"


def counted(counts: Mapping[str, int]) -> str:
    """Numbers of things, such as "3 files, 1 damaged"."""
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def show(fields: Mapping[str, object], text: str, as_json: bool) -> None:
    """Print an object, or the text that says the same to people."""
    click.echo(json_line(fields) if as_json else f"{text}\n", nl=False)
