"""The page's process, for the server: what it is given, its ports, and what must be there for it."""

from __future__ import annotations

import socket
from pathlib import Path

from mqcd.config.settings import Settings
from mqcd.core.errors import ConfigError
from mqcd.daemon.derived import ops_hosts
from mqcd.daemon.places import PAGE, at_port, place_of
from mqcd.net.listening import bind
from mqcd.net.securing.server import BadTlsFile, Certificates, ServerTlsTerms
from mqcd.page.requirements import check_packages
from mqcd.page.terms import Terms


def terms_of(settings: Settings) -> Terms:
    """What the process needs of the settings."""
    ops = settings.ops
    return Terms(
        page=ops.page,
        control=ops.control.path,
        advice=ops.advice.rootpath,
        log=ops.log,
        hosts=ops_hosts(settings),
    )


def check_page(settings: Settings, conf: Path | None) -> None:
    """See that the page's packages are there, and that its TLS files can be loaded. Raises ConfigError."""
    check_packages()
    own = settings.ops.page
    if own.certfile is None:
        return
    keys = () if own.keyfile is None else (own.keyfile,)
    try:
        Certificates(ServerTlsTerms(certificates=(own.certfile,), keys=keys))
    except BadTlsFile as error:
        raise ConfigError(f"{place_of(conf, PAGE)}@{error.setting}: {error}") from error


async def bind_page(settings: Settings, conf: Path | None) -> list[socket.socket]:
    """The bound sockets of the page; none where it is not wanted. Raises ConfigError."""
    own = settings.ops.page
    if not own.enabled or settings.queue.read_only:
        # A server of a read-only queue has no control socket.
        return []
    check_page(settings, conf)
    with at_port(conf, PAGE, own.interface, own.port):
        return list(await bind(own.interface, own.port))
