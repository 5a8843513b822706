"""The store that a configuration names: its class is found, its settings are checked by its constructor.

A store is a class whose constructor's keyword parameters are its settings. A parameter of type int whose name
ends in `_ms` is a time, one in `_octets` a size. Parameters of other types are not for configurations.
"""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from mqcd.config.blocks import Given
from mqcd.config.kinds.fields import YES_NO, BadValue, Count, Duration, Kind, Line, Size
from mqcd.config.settings import CLUSTER, StoreSettings
from mqcd.core.errors import ConfigError
from mqcd.core.value import value
from mqcd.stores.backend import Backend

STORES = ("memory", "files", "symlinks", "leveldb", "redis", "s3", "postgres")
"""Words for stores that come with mqcd: for NAME, the class NAMEStore in the module mqcd.stores.NAME. What it
needs beside mqcd itself is the extra NAME."""
_ELSEWHERE = {"memory": "mqcd.stores.mapping:MappingStore"}


class BadStore(ConfigError):
    """A store cannot be made as it is configured. `name` is the setting at fault, "" = the class."""

    def __init__(self, text: str, name: str = "") -> None:
        super().__init__(text)
        self.name = name


@value(kw_only=False)
class Parameter:
    """A setting of a store."""

    name: str
    type: type[Any]
    required: bool

    def parse(self, given: Given) -> object:
        """The value of a text. Raises BadStore."""
        if self.type is Path:
            if not given.text:
                raise BadStore("expected a path", self.name)
            return given.path
        try:
            return float(given.text) if self.type is float else self._kind().parse(given.text)
        except BadValue as error:
            raise BadStore(str(error), self.name) from error
        except ValueError as error:
            raise BadStore(f"{given.text[:60]!r}: expected a number, such as 0.5", self.name) from error

    def _kind(self) -> Kind[Any]:
        if self.type is bool:
            return YES_NO
        if self.type is str:
            return Line()
        if self.name.endswith("_ms"):
            return Duration()
        return Size() if self.name.endswith("_octets") else Count()


def make_backend(settings: StoreSettings) -> Backend:
    """The store; it is not opened. Raises BadStore for the first thing that is wrong."""
    found = find_class(settings.kind)
    arguments = dict(_arguments(settings, parameters(found)))
    try:
        made = found(**arguments)
    except BadStore:
        raise
    except ConfigError as error:
        raise BadStore(str(error)) from error
    except ImportError as error:
        raise BadStore(missing(settings.kind, error)) from error
    except (ValueError, TypeError, OSError) as error:
        raise BadStore(f"{settings.kind} cannot be made with these settings: {error}") from error
    return cast(Backend, made)


def find_class(kind: str) -> Callable[..., object]:
    """The class of a store. Raises BadStore."""
    target = target_of(kind)
    module, _, name = target.partition(":")
    if not module or not name:
        words = ", ".join([CLUSTER, *STORES])
        raise BadStore(f'there is no store "{kind}": expected one of {words}, or module:Class of your own')
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise BadStore(missing(kind, error)) from error
    except Exception as error:
        # A fault in a module of the user's own.
        raise BadStore(f"{target} cannot be imported: {type(error).__name__}: {error}") from error
    if not inspect.isclass(found):
        raise BadStore(f"{target}: module {module} has no class {name}")
    absent = [each for each in _METHODS if not callable(getattr(found, each, None))]
    if absent:
        raise BadStore(f"{target} is no store: it has no {', '.join(absent)}")
    return found


_METHODS = ("open", "close", "take", "renew", "write", "stage", "unstage", "content")


def target_of(kind: str) -> str:
    """Where the class of a store is: `module:Class`."""
    if kind not in STORES:
        return kind
    return _ELSEWHERE.get(kind, f"mqcd.stores.{kind}:{kind.capitalize()}Store")


def missing(kind: str, error: ImportError) -> str:
    """What to do about a store that cannot be imported."""
    target = target_of(kind)
    if kind not in STORES:
        return f"{target} cannot be imported: {error}"
    if error.name == target.partition(":")[0]:
        return f"this version of mqcd has no store {kind}"
    return f"{kind} needs more than mqcd itself ({error}): pip install 'mqcd[{kind}]'"


def parameters(found: Callable[..., object]) -> Sequence[Parameter]:
    """The settings that a store's class has."""
    hints = typing.get_type_hints(found.__init__)
    return [
        Parameter(name, plain, each.default is inspect.Parameter.empty)
        for name, each in inspect.signature(found).parameters.items()
        if (plain := _plain(hints.get(name))) is not None
    ]


def _plain(hint: object) -> type[Any] | None:
    """The type of a parameter that a text can set; None if it has another."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        kinds = {_plain(each) for each in typing.get_args(hint) if each is not type(None)}
        return kinds.pop() if len(kinds) == 1 else None
    known = (str, int, float, bool, Path)
    return cast("type[Any]", hint) if hint in known else None


def _arguments(settings: StoreSettings, known: Sequence[Parameter]) -> Iterator[tuple[str, object]]:
    by_name = {each.name: each for each in known}
    for given in settings.given:
        if given.name not in by_name:
            names = ", ".join(sorted(by_name)) or "none"
            raise BadStore(f"no setting of {settings.kind}, which has: {names}", given.name)
        yield given.name, by_name[given.name].parse(given)
    names_given = {given.name for given in settings.given}
    for each in known:
        if each.required and each.name not in names_given:
            raise BadStore(f"{settings.kind} needs <{each.name}>")


def directories(settings: StoreSettings) -> Sequence[Path]:
    """The directories that a store works in: its paths, but those of files. Raises BadStore."""
    if settings.kind == CLUSTER:
        return []
    known = {each.name for each in parameters(find_class(settings.kind)) if each.type is Path}
    return [each.path for each in settings.given if each.name in known and not each.name.endswith("file")]
