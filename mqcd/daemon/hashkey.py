"""The key that the event log hashes addresses with, read at start from the file that the settings name.

Its octets count as they are, a line feed at the end too. A file that cannot be read, that everybody on the
machine may read, or that is too short is a mistake of the configuration: a log meant to hold no addresses
must never hold them by mistake.
"""

from __future__ import annotations

import os
from pathlib import Path

from mqcd.config.settings import EventsSettings
from mqcd.core.errors import ConfigError
from mqcd.daemon.places import HASHKEY, place_of
from mqcd.eventlog.pseudonyms import MIN_KEY

_OTHERS = 0o007
_MAX_KEY = 4096


def hash_key(settings: EventsSettings, conf: Path | None = None) -> bytes:
    """The key; b"" when none is set. `conf` is the file for errors to name. Raises ConfigError."""
    path = settings.hashkey
    if path is None:
        return b""
    place = place_of(conf, HASHKEY)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(_MAX_KEY + 1)
    except OSError as error:
        raise ConfigError(f"{place}: the key {path} cannot be read: {error.strerror}") from error
    if mode & _OTHERS:
        raise ConfigError(f"{place}: everybody may read or change the key {path}: chmod 600 it")
    if len(key) < MIN_KEY:
        raise ConfigError(f"{place}: the key {path} has {len(key)} octets, at least {MIN_KEY} are needed")
    if len(key) > _MAX_KEY:
        raise ConfigError(f"{place}: {path} has more than {_MAX_KEY} octets: is this the key?")
    return key
