"""The schemas of what is answered, in JSON Schema 2020-12. Fields may be added, never renamed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqcd.core.model import Action, Area
from mqcd.core.selecting.rules import RuleAction
from mqcd.daemon.control.api.fields import Schema

LEVELS = ("debug", "info", "warning", "error")
"""Of the log."""
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
SWITCH: Schema = {"type": "boolean"}
ANY: Schema = {}
TIME: Schema = {"type": "string", "format": "date-time"}


def maybe(schema: Schema) -> Schema:
    """Null where there is none."""
    values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [schema["type"], "null"], **values}


def array(items: Schema) -> Schema:
    """Any number of these."""
    return {"type": "array", "items": items}


def record(**fields: Schema) -> Schema:
    """An object that has all of these."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def one_of(*texts: str) -> Schema:
    """One of these texts."""
    return {**TEXT, "enum": list(texts)}


def extended(schema: Schema, **fields: Schema) -> Schema:
    """An object that has all of these too."""
    return {**optional(schema, **fields), "required": [*schema["required"], *fields]}


def optional(schema: Schema, **fields: Schema) -> Schema:
    """An object that may have these too."""
    return {**schema, "properties": {**schema["properties"], **fields}}


AREA = one_of(*Area)
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
_HELD: Mapping[str, Schema] = {"recipients": NUMBER, "bytes": NUMBER, "oldest": maybe(TIME)}
COUNT = optional(record(**_HELD), unrouted=NUMBER)
AREAS = array(record(area=AREA, **_HELD))
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
EVENT = optional(record(event=TEXT, at=TIME), spid=TEXT, qid=NUMBER)
_OF_MESSAGE = record(
    qid=NUMBER,
    recipient=maybe(TEXT),
    area=maybe(AREA),
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
    history=array(EVENT),
    unread=array(TEXT),
)
_SIDE = one_of("in", "out")
TRACED = optional(
    record(event=one_of("opened", "said", "content", "secured", "closed", "dropped", "ended")),
    at=TIME,
    side=_SIDE,
    session=TEXT,
    name=TEXT,
    peer=TEXT,
    who=one_of("client", "server"),
    text=TEXT,
    octets=NUMBER,
)
_SAMPLE = array(record(spid=TEXT, qid=NUMBER, area=AREA, sender=TEXT, recipient=TEXT))
PROGRESS = optional(
    record(batch=maybe(TEXT), matched=NUMBER, changed=NUMBER, in_flight=NUMBER, done=SWITCH, trouble=TEXT),
    sample=_SAMPLE,
    unrouted=NUMBER,
    left_out=array(TEXT),
)
BATCH = extended(
    PROGRESS,
    action=one_of(*Action),
    at=TIME,
    by=TEXT,
    reason=TEXT,
    selection={"type": "object"},
    undo=SWITCH,
    undo_until=maybe(TIME),
)
ADDED = record(spid=maybe(TEXT), recipients=array(record(recipient=TEXT, accepted=SWITCH, reply=maybe(TEXT))))
_TRAFFIC: Mapping[str, Schema] = {
    "waiting": NUMBER,
    "connections": NUMBER,
    "idle": NUMBER,
    "window": NUMBER,
    "suspended": SWITCH,
    "probe_in_ms": NUMBER,
    "rate_in_ms": NUMBER,
}
LANE = record(name=TEXT, destination=TEXT, zone=TEXT, **_TRAFFIC)
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
    state=one_of("suspended", "probing", "open", "idle"),
    oldest_ms=maybe(NUMBER),
    **_TRAFFIC,
    rates=array(TEXT),
    rule=maybe(TEXT),
    reply=maybe(TEXT),
    reply_ms=maybe(NUMBER),
    why=one_of(*WHY),
    why_text=TEXT,
)
RULE = record(
    id=TEXT,
    action=one_of(*RuleAction),
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
RULE_ADDED = optional(
    record(rule={"anyOf": [RULE, {"type": "null"}]}, batch=maybe(TEXT)),
    matched=NUMBER,
    sample=_SAMPLE,
    unrouted=NUMBER,
    left_out=array(TEXT),
)
RULE_CANCELLED = record(rule=RULE, stays=maybe(TEXT), undo=maybe(TEXT))
STUCK = record(kind=TEXT, name=TEXT, since_ms=NUMBER, recipients=NUMBER)
CONNECTION = optional(
    record(side=_SIDE, session=TEXT, state=TEXT, since_ms=NUMBER, tls=TEXT, messages=NUMBER),
    listener=TEXT,
    client=TEXT,
    user=TEXT,
    destination=TEXT,
    zone=TEXT,
    remote_host=TEXT,
    remote_addr=TEXT,
    source_addr=TEXT,
    shard=NUMBER,
)
STATE = record(
    parts=array(record(part=TEXT, paused=SWITCH, by=maybe(TEXT), since=maybe(TIME), reason=maybe(TEXT))),
    waiting=NUMBER,
    areas={"type": "object", "additionalProperties": NUMBER},
    drained=SWITCH,
)
SETTING = record(path=TEXT, value=TEXT, default=TEXT, line=maybe(NUMBER), gloss=TEXT)
LEVEL = record(level=one_of(*LEVELS), until=maybe(TIME))
DOCUMENT: Mapping[str, Any] = {"type": "object"}
