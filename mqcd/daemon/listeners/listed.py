"""The files of users and blacklists that listeners go by: whether each can be read and has no wrong line.

`mqcd check`, the start and SIGHUP look, as the server's user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from mqcd.config.kinds.overriding import given
from mqcd.config.problems import BadConfiguration, Remark
from mqcd.config.settings import NetworkSettings, ServerSettings, SubmitSettings
from mqcd.core.errors import ConfigError
from mqcd.daemon.places import LISTENERS, line_of
from mqcd.submit.policy.blacklists import read_blacklist
from mqcd.submit.users.file import read_users

_Read = Callable[[Path], object]


def check_listed(submit: SubmitSettings, conf: Path | None = None) -> None:
    """Read each; `conf` is the file for errors to name. Raises BadConfiguration with all that fail."""
    remarks = []
    for number, listener in enumerate(submit.listeners, start=1):
        for place, file, read in _files(listener.server):
            path = f"{LISTENERS}/listener[{number}]/server/{place}"
            try:
                read(file)
            except ConfigError as error:
                line = line_of(conf, path) if conf else 0
                remarks.append(Remark(file=str(conf or ""), line=line, path=path, text=str(error)))
    if remarks:
        raise BadConfiguration(tuple(remarks))


def _files(server: ServerSettings) -> Iterator[tuple[str, Path, _Read]]:
    """Where each file is named in the <server> block, and what reads it."""
    if server.users is not None:
        yield "users@file", server.users, read_users
    blocks = [("", server)]
    for number, network in enumerate(server.remotenets, start=1):
        own = given(network, NetworkSettings)
        if "blacklist" in own or "blacklist_enabled" in own:
            blocks.append((f"remotenets/remotenet[{number}]/", replace(server, **own)))
    for at, block in blocks:
        if block.blacklist is not None and block.blacklist_enabled:
            yield f"{at}blacklist@file", block.blacklist, read_blacklist
