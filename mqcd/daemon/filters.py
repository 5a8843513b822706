"""The filters that listeners name: whether each can be imported and made.

`mqcd check`, the start and SIGHUP look, so that a wrong name is an error there, and no listener goes without
the filter that it names.
"""

from __future__ import annotations

from pathlib import Path

from mqcd.config.problems import BadConfiguration, Remark
from mqcd.config.settings import SubmitSettings
from mqcd.daemon.places import LISTENERS, line_of
from mqcd.submit.handlers import BadFilter, make_handler


def check_filters(submit: SubmitSettings, conf: Path | None = None) -> None:
    """Make each; `conf` is the file for errors to name. Raises BadConfiguration with all that fail."""
    remarks = []
    for number, listener in enumerate(submit.listeners, start=1):
        if not listener.server.filter:
            continue
        path = f"{LISTENERS}/listener[{number}]/server/filter@class"
        try:
            make_handler(listener.server.filter)
        except BadFilter as error:
            line = line_of(conf, path) if conf else 0
            remarks.append(Remark(file=str(conf or ""), line=line, path=path, text=str(error)))
    if remarks:
        raise BadConfiguration(tuple(remarks))
