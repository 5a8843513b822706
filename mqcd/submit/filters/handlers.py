"""An aiosmtpd handler, made from the name of its class, and its hooks.

A class is named `module:Class`, found as Python imports it, and made without arguments, or from its options
by its class method `from_options`; one instance serves all sessions of a listener. Hooks are its methods
`handle_EHLO`, `handle_HELO`, `handle_MAIL`, `handle_RCPT`, `handle_DATA`, `handle_RSET`, `handle_NOOP`,
`handle_VRFY`, `handle_QUIT` and `handle_exception`.

A class that cannot be imported or made raises BadFilter, whatever it raises itself, and so does one with a
hook that the door never calls (AUTH, STARTTLS, PROXY, `process_message`): what it restricts would be let in.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from mqcd.config.settings import PeerSettings
from mqcd.core.errors import ConfigError
from mqcd.core.value import value
from mqcd.submit.filters.options import split_options

Hook = Callable[..., Awaitable[Any]]

CALLED = ("EHLO", "HELO", "MAIL", "RCPT", "DATA", "RSET", "NOOP", "VRFY", "QUIT")
_HOOKS = tuple(f"handle_{each}" for each in (*CALLED, "exception"))
_NEVER_CALLED = ("handle_AUTH", "handle_STARTTLS", "handle_PROXY", "process_message")


FilterKey = tuple[str, Sequence[str]]
"""The class of a filter, and its options."""


def filter_key(settings: PeerSettings) -> FilterKey:
    """The filter that settings name; its class is "" where they name none."""
    return settings.filter, settings.filter_options


class BadFilter(ConfigError):
    """A class that cannot be a listener's filter. Fault: the configuration or the class."""


@value
class Handler:
    """One instance of a handler class."""

    instance: Any
    hooks: Mapping[str, Hook]
    """By command."""
    plans_ehlo: bool = False
    """Whether `handle_EHLO` has aiosmtpd's newer form: it is given the planned lines and returns all."""


def make_handler(name: str, options: Sequence[str] = ()) -> Handler:
    """An instance of the class `name`; its options are `name=value` texts. Raises BadFilter."""
    return handler_of(_make(name, options), name)


def handler_of(instance: Any, name: str) -> Handler:
    """The hooks of an instance; `name` is for errors. Raises BadFilter."""
    unused = [each for each in _NEVER_CALLED if hasattr(instance, each)]
    unused += [each for each in dir(instance) if each.startswith("auth_")]
    if unused:
        raise BadFilter(f"{name} has {', '.join(unused)}, which a listener does not call")
    hooks = {each: getattr(instance, f"handle_{each}", None) for each in CALLED}
    present = {each: hook for each, hook in hooks.items() if hook is not None}
    arguments = _arguments(present["EHLO"]) if "EHLO" in present else 5
    if arguments not in (4, 5):
        raise BadFilter(f"{name}: handle_EHLO takes server, session, envelope, hostname and responses")
    return Handler(instance=instance, hooks=present, plans_ehlo=arguments == 5)


def _arguments(hook: Hook) -> int:
    """How many it takes; -1 = it is none."""
    try:
        return len(inspect.signature(hook).parameters)
    except (TypeError, ValueError):
        return -1


def _make(name: str, options: Sequence[str]) -> Any:
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise BadFilter(f"{name} cannot be imported: {_shown(error)}") from error
    if not isinstance(found, type):
        raise BadFilter(f"{name} is not a class")
    make = getattr(found, "from_options", None)
    if make is None and options:
        raise BadFilter(f"{name} takes no options: leave the text of its element empty")
    if make is not None:
        return _made_from(found, name, options)
    try:
        return found()
    except Exception as error:
        raise BadFilter(f"{name} cannot be made without arguments: {_shown(error)}") from error


def _made_from(found: type[Any], name: str, options: Sequence[str]) -> Any:
    try:
        made = found.from_options(split_options(options))
    except ValueError as error:
        raise BadFilter(f"{name}: {error}") from error
    except Exception as error:
        raise BadFilter(f"{name} cannot be made from its options: {_shown(error)}") from error
    # Of a class of its own choice: it may have wrapped another handler.
    if isinstance(made, type) or all(getattr(made, each, None) is None for each in _HOOKS):
        raise BadFilter(f"{name}: from_options returned {type(made).__name__}, no handler with a hook")
    return made


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
