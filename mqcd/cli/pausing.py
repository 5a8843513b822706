"""`pause`, `resume`, `drain`: the server stops accepting, delivering or reporting, or empties itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from mqcd.cli.asking import ask, control_at
from mqcd.cli.options import Command, Place, as_json, at_place, show
from mqcd.cli.progress import waiting
from mqcd.net.clock import SystemClock

if TYPE_CHECKING:
    from mqcd.net.control.client import Control

_POLL_S = 1.0
_PARTS = ("accept", "deliver", "report")


def _reason(command: Command) -> Command:
    return click.option("--reason", metavar="TEXT", default="", help="Reason, for log and /readyz.")(command)


@click.command(short_help="Pause accepting, delivering or reporting.")
@click.argument("part", type=click.Choice(_PARTS))
@_reason
@as_json
@at_place
def pause(place: Place, /, part: str, reason: str, as_json: bool) -> None:
    """Pause a part of the running server: accept, deliver or report. It stays paused over restarts."""
    _show(_change(control_at(place), part, True, reason), as_json)


@click.command(short_help="Resume what was paused.")
@click.argument("part", type=click.Choice(_PARTS))
@_reason
@as_json
@at_place
def resume(place: Place, /, part: str, reason: str, as_json: bool) -> None:
    """Resume a part of the running server: accept, deliver or report."""
    _show(_change(control_at(place), part, False, reason), as_json)


@click.command(short_help="Accept nothing more, and deliver what waits.")
@_reason
@click.option("--no-wait", is_flag=True, help="Do not wait until the queue is empty.")
@as_json
@at_place
def drain(place: Place, /, reason: str, no_wait: bool, as_json: bool) -> None:
    """Pause accepting, resume delivery and reports, and wait until nothing waits. Held mail stays."""
    control = control_at(place)
    for part, paused in (("accept", True), ("deliver", False), ("report", False)):
        _change(control, part, paused, reason)
    with waiting(SystemClock()) as progress:
        state = ask(control, "/v1/state")
        most = state["waiting"]
        while not (state["drained"] or no_wait):
            most = max(most, state["waiting"])
            progress("delivering what waits", most - state["waiting"], most)
            time.sleep(_POLL_S)
            state = ask(control, "/v1/state")
    _show(state, as_json)


def _change(control: Control, part: str, paused: bool, reason: str) -> Any:
    return ask(control, "/v1/pause", {"part": part, "paused": paused, "reason": reason})


def _show(state: Mapping[str, Any], as_json: bool) -> None:
    lines = []
    for each in state["parts"]:
        why = f": {each['reason']}" if each["reason"] else ""
        paused = f"paused by {each['by']} since {each['since']}{why}"
        lines.append(f"{each['part']:8} {paused if each['paused'] else 'on'}")
    lines.append(f"{'drained' if state['drained'] else 'waiting'}: {state['waiting']} recipients")
    show(state, "\n".join(lines), as_json)
