"""The table: everything that can be asked over the control socket.

A line of it is all that a new operation needs besides its handler in `daemon.control.pages` and, for several
shards, in `daemon.shards.front`; the description follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from mqcd.core.model import Action
from mqcd.core.queueing.amendment import LATEST_MS
from mqcd.core.selecting.rules import RuleAction
from mqcd.daemon.control.api import answers
from mqcd.daemon.control.api.fields import Field, Kind
from mqcd.daemon.control.api.operation import (
    EVENTS,
    JSON,
    LINES,
    MESSAGE,
    Body,
    Method,
    Operation,
    Operations,
    Role,
    by_path,
)

GET, POST = Method.GET, Method.POST
MOST_ROWS = 1000
MOST_TRACED = 100_000
_HOUR_MS = 3_600_000
_DAY_MS = 86_400_000
_WHERE = Field(name="where", gloss="Condition that selects recipients; none selects all.")
_SPID = HTTPStatus.NOT_FOUND

AUTHOR = Field(
    name="X-Mqcd-Author",
    gloss="Who asks, as one word; only root and the server's own user speak for others.",
)
"""Of any operation that changes something."""

_SELECTION = Field(
    name="selection",
    kind=Kind.OBJECT,
    gloss="Which recipients: area, spid, sender, recipient, domain, received_before (ms), limit; where with "
    "now (ms). Nothing selects all.",
)
_REASON = Field(name="reason", gloss="Why, for log and events.")
_DRY_RUN = Field(name="dry_run", kind=Kind.SWITCH, gloss="Only count, and show the first few.")
_BATCH: Sequence[Field] = (
    Field(name="action", gloss="What to do.", required=True, choices=[*Action]),
    _SELECTION,
    _DRY_RUN,
    _REASON,
    Field(
        name="until",
        kind=Kind.NUMBER,
        most=LATEST_MS,
        gloss="Of reschedule: when mail is tried next, ms since 1970. A dry run needs none.",
    ),
    Field(
        name="target", gloss="Of redirect: an address or host:port; a dry run needs none. Of undo: the batch."
    ),
    Field(name="report", kind=Kind.SWITCH, gloss="Of remove and bounce: whether senders get reports."),
    Field(name="by", gloss="Of the front process of several shards: who asked."),
    Field(name="id", gloss="Of the same: the batch's name."),
    Field(
        name="at",
        kind=Kind.NUMBER,
        most=LATEST_MS,
        gloss="Of the same: when it was asked for, ms since 1970.",
    ),
)
ENVELOPE = (
    Field(name="from", gloss='The sender; "" is the null one.', required=True),
    Field(name="to", kind=Kind.TEXTS, gloss="The recipients.", required=True),
    Field(name="content", gloss="The message: header, empty line, body.", required=True),
    Field(name="key", gloss="Idempotency key."),
    Field(name="hold", gloss="A name under which the message is held; `hold` in conditions."),
)
"""Of a message that is to enter the queue."""
_HEADERS = (
    Field(name="X-Mqcd-From", gloss="The sender, where the body is the message itself."),
    Field(name="X-Mqcd-To", gloss="The recipients, with commas between."),
    Field(name="X-Mqcd-Key", gloss="Idempotency key."),
    Field(name="X-Mqcd-Hold", gloss="A name under which the message is held; `hold` in conditions."),
)
_VERBS = Field(name="verb", gloss="Only these, with commas between, such as bounced,expired.")
_DOMAINS = Field(name="domain", gloss="Only events of recipients of these domains, with commas between.")

_OPERATIONS: Operations = {
    # Mail.
    (GET, "/v1/recipients"): Operation(
        name="listRecipients",
        searches=True,
        summary="Recipients in the queue, a part at a time. In the store's own order a part is quick; by "
        "age, what stays in the queue comes exactly once.",
        fields=(
            _WHERE,
            Field(name="limit", kind=Kind.NUMBER, least=1, most=MOST_ROWS, gloss="Rows; 100 by default."),
            Field(name="after", gloss="`next` of the part before."),
            Field(name="sort", choices=["age"], gloss="The oldest first."),
        ),
        answer=answers.RECIPIENTS,
    ),
    (GET, "/v1/count"): Operation(
        name="countRecipients",
        searches=True,
        summary="How many recipients are selected, exactly, and their octets. Reads the whole queue.",
        fields=(_WHERE,),
        answer=answers.COUNT,
    ),
    (GET, "/v1/areas"): Operation(
        name="listAreas", summary="What each area holds. Costs no scan.", answer=answers.AREAS
    ),
    (POST, "/v1/messages"): Operation(
        name="addMessage",
        summary="A message into the queue, by the rules of programs' mail: the body is the message, the "
        "header has the envelope; or one JSON object. What is answered is durable.",
        role=Role.INJECT,
        fields=ENVELOPE,
        headers=[AUTHOR, *_HEADERS],
        body=Body.STREAM,
        takes=[JSON, MESSAGE],
        answer=answers.ADDED,
        errors=[HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY],
    ),
    (GET, "/v1/messages/{spid}"): Operation(
        name="showMessage",
        summary="One message: envelope, recipients that are left, header fields, history.",
        answer=answers.MESSAGE,
        errors=[_SPID],
    ),
    (GET, "/v1/messages/{spid}/content"): Operation(
        name="readContent",
        summary="The content of a message, octet for octet. For root and the server's user alone.",
        role=Role.OPERATE,
        gives=MESSAGE,
        errors=[HTTPStatus.FORBIDDEN, _SPID],
    ),
    (POST, "/v1/batch"): Operation(
        name="beginBatch",
        summary="Do something to a selection, durably (retry = try it now); or count for it (`dry_run`).",
        role=Role.OPERATE,
        fields=_BATCH,
        headers=[AUTHOR],
        body=Body.OWN,
        answer=answers.PROGRESS,
    ),
    (GET, "/v1/batches"): Operation(
        name="listBatches",
        summary="The last batches, the newest first; or one.",
        fields=[Field(name="id", gloss="Only this one: an object.")],
        answer={"oneOf": [answers.BATCH, answers.array(answers.BATCH)]},
        errors=[_SPID],
    ),
    # Standing rules.
    (GET, "/v1/rules"): Operation(
        name="listRules", summary="The standing rules.", answer=answers.array(answers.RULE)
    ),
    (POST, "/v1/rules"): Operation(
        name="addRule",
        summary="Add a standing rule; with `dry_run` say how much mail that waits it selects.",
        role=Role.OPERATE,
        fields=(
            Field(name="action", required=True, choices=[*RuleAction], gloss="Its effect."),
            Field(name="where", required=True, gloss="Condition: the mail that it is for."),
            Field(name="name", gloss="A name for people."),
            _REASON,
            Field(name="until", gloss="Its end, RFC 3339; none = until it is cancelled."),
            Field(name="for", kind=Kind.DURATION, gloss="In place of `until`."),
            Field(name="rate", gloss="Of slow: such as 10/s."),
            Field(name="connections", kind=Kind.NUMBER, least=1, gloss="Of slow: connections at most."),
            Field(name="report", kind=Kind.SWITCH, gloss="Of bounce: whether senders get reports."),
            _DRY_RUN,
        ),
        headers=[AUTHOR],
        body=Body.OWN,
        answer=answers.RULE_ADDED,
    ),
    (POST, "/v1/rules/cancel"): Operation(
        name="cancelRule",
        summary="End a rule. The answer names what stays of it, and the command that takes that back.",
        role=Role.OPERATE,
        fields=[Field(name="id", required=True, gloss="Its name.")],
        headers=[AUTHOR],
        body=Body.OWN,
        answer=answers.RULE_CANCELLED,
    ),
    # Delivery.
    (GET, "/v1/destinations"): Operation(
        name="listDestinations",
        summary="The 100 destinations with mail that are worst off, and why.",
        answer=answers.array(answers.DESTINATION),
    ),
    (GET, "/v1/lanes"): Operation(
        name="listLanes",
        summary="The lanes with mail: a destination may have one for each zone.",
        answer=answers.array(answers.LANE),
    ),
    (GET, "/v1/stuck"): Operation(
        name="listStuck",
        summary="What makes no progress for longer than the watchdog's limit.",
        answer=answers.array(answers.STUCK),
    ),
    (GET, "/v1/explain"): Operation(
        name="explain",
        summary="Where mail to an address or of a message goes, and why it waits.",
        searches=True,
        fields=(
            Field(name="q", gloss="An address, a domain, or a SPID."),
            Field(name="sender", gloss="The sender of the mail in question."),
        ),
        gives=LINES,
        answer={"type": "object"},
    ),
    (GET, "/v1/connections"): Operation(
        name="listConnections",
        summary="The open connections of clients, and those to next hops.",
        answer=answers.array(answers.CONNECTION),
    ),
    # The server.
    (GET, "/v1/events"): Operation(
        name="listenToEvents",
        summary="Live events from now on, until the connection ends; as server-sent events, or a JSON "
        "object a line where Accept asks for application/x-ndjson. An event `dropped` counts what a slow "
        "listener has missed.",
        fields=(_VERBS, _DOMAINS),
        gives=EVENTS,
        answer=answers.EVENT,
    ),
    (GET, "/v1/trace"): Operation(
        name="trace",
        summary="What client and server say in sessions that concern one address or peer, as it is said: "
        "commands and replies, never contents, never passwords. A stream like that of events.",
        role=Role.OPERATE,
        fields=(
            Field(
                name="q",
                required=True,
                gloss="A mail address, domain, user, host, destination, IP address or network.",
            ),
            Field(
                name="for",
                kind=Kind.DURATION,
                least=1000,
                most=_HOUR_MS,
                gloss="How long; 10m by default.",
            ),
            Field(
                name="limit",
                kind=Kind.NUMBER,
                least=1,
                most=MOST_TRACED,
                gloss="Lines; 10000 by default.",
            ),
        ),
        headers=[AUTHOR],
        gives=EVENTS,
        answer=answers.TRACED,
    ),
    (POST, "/v1/pause"): Operation(
        name="pause",
        summary="Pause a part of the server, durably, or resume it. Accept: 450 to MAIL. Deliver: no "
        "attempt begins, nothing expires. Report: no bounce is reported.",
        role=Role.OPERATE,
        fields=(
            Field(name="part", required=True, choices=["accept", "deliver", "report"], gloss="Which."),
            Field(name="paused", kind=Kind.SWITCH, required=True, gloss="False resumes it."),
            _REASON,
        ),
        headers=[AUTHOR],
        answer=answers.STATE,
    ),
    (GET, "/v1/state"): Operation(
        name="showState",
        summary="What is paused, by whom and since when; and what a drain still waits for.",
        answer=answers.STATE,
    ),
    (GET, "/v1/settings"): Operation(
        name="listSettings",
        summary="The settings in effect, their defaults, and the lines that set them; no secrets. Of "
        "several shards those of the first, whose bounds are its share.",
        answer=answers.array(answers.SETTING),
    ),
    (GET, "/v1/loglevel"): Operation(
        name="showLogLevel", summary="The level of the log.", answer=answers.LEVEL
    ),
    (POST, "/v1/loglevel"): Operation(
        name="setLogLevel",
        summary="Change the level of the log, for a time or until the next reload.",
        role=Role.OPERATE,
        fields=(
            Field(
                name="level",
                required=True,
                choices=answers.LEVELS,
                gloss="The lowest level that is logged.",
            ),
            Field(
                name="for",
                kind=Kind.DURATION,
                least=1000,
                most=_DAY_MS,
                gloss="How long, such as 10m; then the configured level is back.",
            ),
        ),
        headers=[AUTHOR],
        answer=answers.LEVEL,
    ),
    (GET, "/v1/openapi.json"): Operation(
        name="describe", summary="This description, in OpenAPI 3.1.", answer=answers.DOCUMENT
    ),
}

TABLE = by_path(_OPERATIONS)
