"""The filters that listeners name: whether each can be imported and made.

`mqcd check`, the start and SIGHUP look, so that a wrong name is an error there, and no listener goes without
the filter that it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mqcd.config.kinds.overriding import given
from mqcd.config.problems import BadConfiguration, Remark
from mqcd.config.settings import NetworkSettings, ServerSettings, SubmitSettings
from mqcd.daemon.places import LISTENERS, LOCAL, line_of
from mqcd.submit.filters.handlers import BadFilter, filter_key, make_handler
from mqcd.submit.policy.local import listener_of


def check_filters(submit: SubmitSettings, conf: Path | None = None) -> None:
    """Make each; `conf` is the file for errors to name. Raises BadConfiguration with all that fail."""
    remarks = []
    at = {
        f"{LISTENERS}/listener[{number}]/server/{place}": server
        for number, listener in enumerate(submit.listeners, start=1)
        for place, server in _blocks(listener.server)
    }
    at |= {f"{LOCAL}/{place}": server for place, server in _blocks(listener_of(submit.local, "").server)}
    for place, server in at.items():
        path = f"{place}filter@class"
        try:
            make_handler(*filter_key(server))
        except BadFilter as error:
            line = line_of(conf, path) if conf else 0
            remarks.append(Remark(file=str(conf or ""), line=line, path=path, text=str(error)))
    if remarks:
        raise BadConfiguration(tuple(remarks))


def _blocks(server: ServerSettings) -> Iterator[tuple[str, ServerSettings]]:
    """The settings that name a filter, and where they stand in the <server> block."""
    if server.filter:
        yield "", server
    for number, network in enumerate(server.remotenets, start=1):
        own = given(network, NetworkSettings)
        if own.get("filter") or (server.filter and "filter_options" in own):
            yield f"remotenets/remotenet[{number}]/", replace(server, **own)
