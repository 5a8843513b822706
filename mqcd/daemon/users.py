"""The files of users that listeners name: whether each can be read and has no wrong line.

`mqcd check`, the start and SIGHUP look, as the server's user.
"""

from __future__ import annotations

from pathlib import Path

from mqcd.config.problems import BadConfiguration, Remark
from mqcd.config.settings import SubmitSettings
from mqcd.daemon.places import LISTENERS, line_of
from mqcd.submit.users.file import read_users
from mqcd.submit.users.lines import BadUsers


def check_users(submit: SubmitSettings, conf: Path | None = None) -> None:
    """Read each; `conf` is the file for errors to name. Raises BadConfiguration with all that fail."""
    remarks = []
    for number, listener in enumerate(submit.listeners, start=1):
        if listener.server.users is None:
            continue
        path = f"{LISTENERS}/listener[{number}]/server/users@file"
        try:
            read_users(listener.server.users)
        except BadUsers as error:
            line = line_of(conf, path) if conf else 0
            remarks.append(Remark(file=str(conf or ""), line=line, path=path, text=str(error)))
    if remarks:
        raise BadConfiguration(tuple(remarks))
