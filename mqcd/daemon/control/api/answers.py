"""The schemas of what is answered, in JSON Schema 2020-12. Fields may be added, never renamed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqcd.core.model import Action, Area
from mqcd.core.selecting.rules import RuleAction
from mqcd.daemon.control.api.fields import Schema

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
SWITCH: Schema = {"type": "boolean"}
ANY: Schema = {}
TIME: Schema = {"type": "string", "format": "date-time"}


def maybe(schema: Schema) -> Schema:
    """Null where there is none."""
    return {**schema, "type": [schema["type"], "null"]}


def array(items: Schema) -> Schema:
    """Any number of these."""
    """Any number of these."""
    return {"type": "array", "items": items}


def record(**fields: Schema) -> Schema:
    """An object that has all of these."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def optional(schema: Schema, **fields: Schema) -> Schema:
    """An object that may have these too."""
    return {**schema, "properties": {**schema["properties"], **fields}}


AREA: Schema = {"type": "string", "enum": [area.value for area in Area]}
RECIPIENT = record(
    spid={"type": "string", "pattern": "^[0-9A-F]{16}$"},
    qid=NUMBER,
    area=AREA,
    inflight=SWITCH,
    sender=TEXT,
    recipient=TEXT,
    received=TIME,
    due=maybe(TIME),
    attempts=NUMBER,
    size=NUMBER,
    status=maybe(TEXT),
    reply=maybe(TEXT),
)
RECIPIENTS = optional(record(rows=array(RECIPIENT), next=maybe(TEXT)), left_out=array(TEXT), unrouted=NUMBER)
COUNT = optional(record(recipients=NUMBER, bytes=NUMBER, oldest=maybe(TIME)), unrouted=NUMBER)
AREAS = array(record(area=AREA, recipients=NUMBER, bytes=NUMBER, oldest=maybe(TIME)))
ENVELOPE = record(
    sender=TEXT,
    origin=TEXT,
    listener=TEXT,
    client=TEXT,
    user=TEXT,
    tls=TEXT,
    zone=TEXT,
    received=maybe(TIME),
    size=maybe(NUMBER),
)
_HEADERS: Schema = {
    "type": ["array", "null"],
    "description": "Null for users who may not read contents.",
    "items": {"type": "array", "prefixItems": [TEXT, TEXT], "minItems": 2, "maxItems": 2},
}
_EVENT: Schema = {
    "type": "object",
    "properties": {"event": TEXT, "at": TIME, "spid": TEXT, "qid": NUMBER},
    "required": ["event", "at"],
}
_OF_MESSAGE = record(
    qid=NUMBER,
    recipient=maybe(TEXT),
    area={**AREA, "type": ["string", "null"], "enum": [*AREA["enum"], None]},
    inflight=SWITCH,
    due=maybe(TIME),
    attempts=NUMBER,
    status=maybe(TEXT),
    reply=maybe(TEXT),
    last=maybe(TEXT),
)
MESSAGE = record(
    spid=TEXT,
    envelope=ENVELOPE,
    recipients=array(_OF_MESSAGE),
    headers=_HEADERS,
    history=array(_EVENT),
    unread=array(TEXT),
)
EVENT = _EVENT
TRACED: Schema = {
    "type": "object",
    "properties": {
        "event": {**TEXT, "enum": ["opened", "said", "content", "secured", "closed", "dropped", "ended"]},
        "at": TIME,
        "side": {**TEXT, "enum": ["in", "out"]},
        "session": TEXT,
        "name": TEXT,
        "peer": TEXT,
        "who": {**TEXT, "enum": ["client", "server"]},
        "text": TEXT,
        "octets": NUMBER,
    },
    "required": ["event"],
}
_SAMPLE = array(record(spid=TEXT, qid=NUMBER, area=AREA, sender=TEXT, recipient=TEXT))
PROGRESS = optional(
    record(
        batch=maybe(TEXT),
        matched=NUMBER,
        changed=NUMBER,
        in_flight=NUMBER,
        done=SWITCH,
        trouble=TEXT,
    ),
    sample=_SAMPLE,
    unrouted=NUMBER,
    left_out=array(TEXT),
)
BATCH: Schema = {
    **PROGRESS,
    "properties": {
        **PROGRESS["properties"],
        "action": {"type": "string", "enum": [each.value for each in Action]},
        "at": TIME,
        "by": TEXT,
        "reason": TEXT,
        "selection": {"type": "object"},
        "undo": SWITCH,
        "undo_until": maybe(TIME),
    },
    "required": [*PROGRESS["required"], "action", "at", "by", "reason", "selection", "undo", "undo_until"],
}
ADDED = record(spid=maybe(TEXT), recipients=array(record(recipient=TEXT, accepted=SWITCH, reply=maybe(TEXT))))
LANE = record(
    name=TEXT,
    destination=TEXT,
    zone=TEXT,
    waiting=NUMBER,
    connections=NUMBER,
    idle=NUMBER,
    window=NUMBER,
    suspended=SWITCH,
    probe_in_ms=NUMBER,
    rate_in_ms=NUMBER,
)
WHY: Mapping[str, str] = {
    "suspended": "no server accepts connections",
    "rule": "a rule of an operator suspends it or slows it down",
    "rate": "a rate holds it back",
    "full": "all connections that it may have are at work",
    "slow": "its servers take long to answer",
    "replies": "its servers defer or refuse mail",
    "waits": "mail waits for its next attempt",
    "well": "nothing holds it back",
}
DESTINATION = record(
    destination=TEXT,
    state={"type": "string", "enum": ["suspended", "probing", "open", "idle"]},
    oldest_ms=maybe(NUMBER),
    waiting=NUMBER,
    connections=NUMBER,
    idle=NUMBER,
    window=NUMBER,
    suspended=SWITCH,
    probe_in_ms=NUMBER,
    rate_in_ms=NUMBER,
    rates=array(TEXT),
    rule=maybe(TEXT),
    reply=maybe(TEXT),
    reply_ms=maybe(NUMBER),
    why={"type": "string", "enum": list(WHY)},
    why_text=TEXT,
)
RULE = record(
    id=TEXT,
    action={"type": "string", "enum": [each.value for each in RuleAction]},
    where=TEXT,
    name=TEXT,
    reason=TEXT,
    by=TEXT,
    at=TIME,
    until=maybe(TIME),
    rate=maybe(TEXT),
    connections=maybe(NUMBER),
    report=maybe(SWITCH),
    applied=NUMBER,
)
RULE_ADDED: Schema = {
    "type": "object",
    "properties": {
        "rule": {"anyOf": [RULE, {"type": "null"}]},
        "batch": maybe(TEXT),
        "matched": NUMBER,
        "sample": _SAMPLE,
        "unrouted": NUMBER,
        "left_out": array(TEXT),
    },
    "required": ["rule", "batch"],
}
RULE_CANCELLED = record(rule=RULE, stays=maybe(TEXT), undo=maybe(TEXT))
STUCK: Schema = {
    "type": "object",
    "properties": {"kind": TEXT, "name": TEXT, "since_ms": NUMBER, "recipients": NUMBER},
    "required": ["kind", "name", "since_ms", "recipients"],
}
CONNECTION: Schema = {
    "type": "object",
    "properties": {
        "side": {"type": "string", "enum": ["in", "out"]},
        "session": TEXT,
        "state": TEXT,
        "since_ms": NUMBER,
        "tls": TEXT,
        "messages": NUMBER,
        "listener": TEXT,
        "client": TEXT,
        "user": TEXT,
        "destination": TEXT,
        "zone": TEXT,
        "remote_host": TEXT,
        "remote_addr": TEXT,
        "source_addr": TEXT,
        "shard": NUMBER,
    },
    "required": ["side", "session", "state", "since_ms", "tls", "messages"],
}
STATE = record(
    parts=array(record(part=TEXT, paused=SWITCH, by=maybe(TEXT), since=maybe(TIME), reason=maybe(TEXT))),
    waiting=NUMBER,
    areas={"type": "object", "additionalProperties": NUMBER},
    drained=SWITCH,
)
SETTING = record(path=TEXT, value=TEXT, default=TEXT, line=maybe(NUMBER), gloss=TEXT)
LEVEL = record(level={"type": "string", "enum": ["debug", "info", "warning", "error"]}, until=maybe(TIME))
DOCUMENT: Mapping[str, Any] = {"type": "object"}
