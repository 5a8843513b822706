"""`pause`, `resume`, `drain`: the server stops accepting, delivering or reporting, or empties itself."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import click

from mqcd.cli.options import Command, Place, as_json, at_place, json_line

_ASK_S = 600
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
    _show(_change(place, part, True, reason), as_json)


@click.command(short_help="Resume what was paused.")
@click.argument("part", type=click.Choice(_PARTS))
@_reason
@as_json
@at_place
def resume(place: Place, /, part: str, reason: str, as_json: bool) -> None:
    """Resume a part of the running server: accept, deliver or report."""
    _show(_change(place, part, False, reason), as_json)


@click.command(short_help="Accept nothing more, and deliver what waits.")
@_reason
@click.option("--no-wait", is_flag=True, help="Do not wait until the queue is empty.")
@as_json
@at_place
def drain(place: Place, /, reason: str, no_wait: bool, as_json: bool) -> None:
    """Pause accepting, resume delivery and reports, and wait until nothing waits. Held mail stays."""
    from mqcd.cli.progress import waiting
    from mqcd.net.clock import SystemClock

    for part, paused in (("accept", True), ("deliver", False), ("report", False)):
        _change(place, part, paused, reason)
    with waiting(SystemClock()) as progress:
        state = _state(place)
        most = state["waiting"]
        while not (state["drained"] or no_wait):
            most = max(most, state["waiting"])
            progress("delivering what waits", most - state["waiting"], most)
            time.sleep(_POLL_S)
            state = _state(place)
    _show(state, as_json)


def _change(place: Place, part: str, paused: bool, reason: str) -> Mapping[str, Any]:
    return _asked(place, {"part": part, "paused": paused, **({"reason": reason} if reason else {})})


def _state(place: Place) -> Mapping[str, Any]:
    return _asked(place, None)


def _asked(place: Place, fields: Mapping[str, object] | None) -> Mapping[str, Any]:
    from http import HTTPStatus

    from mqcd.net.control.client import Control, NoAnswer

    control = Control(place.load().settings.ops.control.path)
    if fields is None:
        status, text = control.get("/v1/state", _ASK_S)
    else:
        status, text = control.post("/v1/pause", fields, _ASK_S)
    if status != HTTPStatus.OK:
        raise NoAnswer(f"the server says: {text.strip()}")
    state: Mapping[str, Any] = json.loads(text)
    return state


def _show(state: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json_line(state), nl=False)
        return
    for each in state["parts"]:
        why = f": {each['reason']}" if each["reason"] else ""
        paused = f"paused by {each['by']} since {each['since']}{why}"
        click.echo(f"{each['part']:8} {paused if each['paused'] else 'on'}")
    click.echo(f"{'drained' if state['drained'] else 'waiting'}: {state['waiting']} recipients")
