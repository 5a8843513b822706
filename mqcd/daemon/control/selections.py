"""A selection as a JSON object, as commands send it to a server and batches keep it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqcd.core.errors import DecodeError
from mqcd.core.model import Area
from mqcd.core.queueing.spid import format_spid, parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where

_KINDS: Mapping[str, type] = {
    "area": str,
    "spid": str,
    "sender": str,
    "recipient": str,
    "domain": str,
    "received_before": int,
    "where": str,
    "now": int,
    "limit": int,
}


def selection_fields(chosen: Selection) -> dict[str, object]:
    """As a JSON object; what does not restrict is left out."""
    fields: dict[str, object] = {
        "area": chosen.area.value if chosen.area is not None else None,
        "spid": format_spid(chosen.spid) if chosen.spid is not None else None,
        "sender": chosen.sender,
        "recipient": chosen.recipient or None,
        "domain": chosen.domain or None,
        "received_before": chosen.received_before,
        "where": str(chosen.where) if chosen.where is not None else None,
        "now": chosen.where.now if chosen.where is not None else None,
        "limit": chosen.limit,
    }
    return {name: value for name, value in fields.items() if value is not None}


def parse_selection(fields: object, *, live: bool = False) -> Selection:
    """What `selection_fields` made; `live` as `parse_where` has it.

    Raises DecodeError: a condition that is not understood would select other mail.
    """
    if not isinstance(fields, dict):
        raise DecodeError("selection: expected a JSON object")
    if unknown := fields.keys() - _KINDS.keys():
        raise DecodeError(f"selection: no such field: {min(unknown)}; there are {', '.join(_KINDS)}")
    for name, value in fields.items():
        if type(value) is not _KINDS[name]:
            raise DecodeError(f"{name}: expected {_KINDS[name].__name__}")
    return _selection(fields, live)


def _selection(fields: Mapping[str, Any], live: bool) -> Selection:
    if (limit := fields.get("limit")) is not None and limit < 0:
        raise DecodeError("limit: expected 0 or more")
    try:
        area = Area(fields["area"]) if "area" in fields else None
    except ValueError:
        raise DecodeError(f"area: expected one of {', '.join(each.value for each in Area)}") from None
    if ("where" in fields) is not ("now" in fields):
        raise DecodeError("where and now: expected both, now in ms since 1970")
    try:
        where = parse_where(fields["where"], fields["now"], live=live) if "where" in fields else None
    except DecodeError as error:
        raise DecodeError(f"where: {error}") from error
    return Selection(
        area=area,
        spid=_spid(fields["spid"]) if "spid" in fields else None,
        sender=fields.get("sender"),
        recipient=fields.get("recipient", ""),
        domain=fields.get("domain", ""),
        received_before=fields.get("received_before"),
        where=where,
        limit=limit,
    )


def _spid(text: str) -> int:
    try:
        return parse_spid(text)
    except DecodeError as error:
        raise DecodeError(f"spid: {error}") from error
