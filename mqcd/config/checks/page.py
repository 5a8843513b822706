"""The page: where it runs, and what it needs to be reached from other machines. Pure."""

import dataclasses
import ipaddress
from collections.abc import Collection

from mqcd.config.checks.faults import Remarks
from mqcd.config.settings import OpsSettings, Settings

_PAGE = "ops/page"


def with_page(ops: OpsSettings, given: Collection[str]) -> OpsSettings:
    """A block that says anything and not whether it is enabled is."""
    own = {path for path in given if path.startswith(f"{_PAGE}@")}
    if not own or f"{_PAGE}@enabled" in own:
        return ops
    return dataclasses.replace(ops, page=dataclasses.replace(ops.page, enabled=True))


def page(settings: Settings) -> Remarks:
    """What would serve the queue to strangers, or cannot be."""
    ops, own = settings.ops, settings.ops.page
    if own.keyfile is not None and own.certfile is None:
        yield f"{_PAGE}@certfile", "must be given with keyfile"
    if own.enabled and own.port and (own.interface, own.port) == (ops.interface, ops.port):
        yield f"{_PAGE}@port", f"ops has {own.interface} port {own.port} too: choose another"
    if not own.enabled or is_loopback(own.interface):
        return
    if own.certfile is None and own.keyfile is None:
        text = "must be given where other machines reach the page: it is served there over TLS only"
        yield f"{_PAGE}@certfile", text
    if own.open:
        text = "only for a loopback address: here anybody in the network could change the queue"
        yield f"{_PAGE}@open", text


def is_loopback(interface: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(interface).is_loopback
    except ValueError:
        return interface == "localhost"
